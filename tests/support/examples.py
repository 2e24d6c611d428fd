"""How many examples a property has: few in `make test`, many in `make test-all`."""

from hypothesis import settings

THOROUGH = "thorough"
"""The profile of `make test-all`."""


def examples(usual: int, thorough: int) -> int:
    """Return the number of examples under the profile that is loaded."""
    return thorough if settings.get_current_profile_name() == THOROUGH else usual
