"""The installed wheel, as the tests of the package make it."""

from tests.package.conftest import developed, wheel

__all__ = ["developed", "wheel"]
