"""Errors of edits to memory files, with messages that an LLM can act on. The file is unchanged.

MemoryRefused
├── TasksInvalid      TASKS.md cannot be read; names the line
├── TaskNotFound      TASKS.md has no such task
├── PlaceNotFound     TASKS.md has no heading or task to add the new task under
├── TaskNotAdded      at no position in TASKS.md would the new line be a separate task
├── FeatureNotFound   features.json has no such feature
└── FeaturesInvalid   features.json cannot be read; names the line and column
"""

from holdfast.errors import HoldfastError


class MemoryRefused(HoldfastError):
    """Base of the errors of edits to memory."""


class TasksInvalid(MemoryRefused):
    """TASKS.md cannot be read; the message names the line."""


class TaskNotFound(MemoryRefused):
    """TASKS.md has no such task."""


class PlaceNotFound(MemoryRefused):
    """TASKS.md has no heading or task to add the new task under."""


class TaskNotAdded(MemoryRefused):
    """At no position in TASKS.md would the new line be a separate task."""


class FeatureNotFound(MemoryRefused):
    """features.json has no such feature."""


class FeaturesInvalid(MemoryRefused):
    """features.json cannot be read; the message names the line and column."""
