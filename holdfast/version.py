"""The version of this release, which `pyproject.toml` has, too."""

__version__ = "0.3.0"
