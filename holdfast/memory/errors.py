"""What cannot be done to a memory file, in words that an LLM can act on. Nothing was changed.

MemoryRefused
├── TasksInvalid      TASKS.md cannot be read; says at which line
├── TaskNotFound      TASKS.md has no such task
├── PlaceNotFound     TASKS.md has no heading or task to add the new one under
├── TaskNotAdded      there is no place in TASKS.md where the new line would be a task
├── FeatureNotFound   features.json has no such feature
└── FeaturesInvalid   features.json cannot be read; says at which line and column
"""

from holdfast.errors import HoldfastError


class MemoryRefused(HoldfastError):
    """Base of all that memory refuses."""


class TasksInvalid(MemoryRefused):
    """TASKS.md cannot be read; the text says at which line."""


class TaskNotFound(MemoryRefused):
    """TASKS.md has no such task."""


class PlaceNotFound(MemoryRefused):
    """TASKS.md has no heading or task to add the new one under."""


class TaskNotAdded(MemoryRefused):
    """There is no place in TASKS.md where the new line would be a task of its own."""


class FeatureNotFound(MemoryRefused):
    """features.json has no such feature."""


class FeaturesInvalid(MemoryRefused):
    """features.json cannot be read; the text says at which line and column."""
