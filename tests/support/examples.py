"""The number of examples for a property: few in `make test`, many in `make test-all`."""

from hypothesis import settings

THOROUGH = "thorough"
"""The profile of `make test-all`."""


def examples(usual: int, thorough: int) -> int:
    """Return the number of examples under the loaded profile."""
    return thorough if settings.get_current_profile_name() == THOROUGH else usual
