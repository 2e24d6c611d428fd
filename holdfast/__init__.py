"""Holdfast: a durable agent runtime on Temporal. Users' catalogs, stores, tests and clients import from here.

The names are in `__init__.pyi`. `holdfast.testing` has the test tools, `holdfast.errors` the whole tree of errors.
Everything else may move.
"""

import sys


def _is_run_as_module() -> bool:
    """Whether Python was started as `python -m holdfast…`, and is looking for that module."""
    following = [*sys.orig_argv[2:], ""]
    for word, after in zip(sys.orig_argv[1:], following, strict=True):
        flags, found, rest = word.partition("m")
        if found and flags.startswith("-") and not {*"-cWX"} & {*flags[1:]}:
            return sys.argv[:1] == ["-m"] and (rest or after).partition(".")[0] == __name__
    return False


if _is_run_as_module() and not sys.flags.safe_path:
    del sys.path[0]  # the current directory, before any import: a folder's files must not take the place of modules

from functools import cache  # noqa: E402
from importlib import import_module  # noqa: E402

from holdfast.version import __version__ as __version__  # noqa: E402


@cache
def _modules() -> dict[str, str]:
    """Return the module of each public name, read from the stub, so that no name stands in two lists.

    The package of which the stub exports all names lists them in its `__all__`, which is read unimported, too.
    """
    import re
    from pkgutil import get_data

    stub = (get_data(__name__, "__init__.pyi") or b"").decode()
    names = {
        name: module for module, name in re.findall(r"^from (\S+) import ([A-Za-z]\w+) as \2$", stub, re.MULTILINE)
    }
    for package in re.findall(r"^from (\S+) import \*", stub, re.MULTILINE):
        folder = package.partition(".")[2].replace(".", "/")
        listed = (get_data(__name__, f"{folder}/__init__.py") or b"").decode().partition("__all__ = [")[2]
        names |= dict.fromkeys(re.findall(r'"(\w+)"', listed.partition("]")[0]), package)
    return names


@cache
def _warn_once() -> None:
    """Look for the other distribution of this name when a user's program imports the first public name."""
    import_module("holdfast.config.namesake").warn_of_namesake()


def __getattr__(name: str) -> object:
    """Import a public name on first use: workflows and the CLI need few of them and start faster."""
    if name == "__all__":
        return sorted(_modules())
    if not name.startswith("_") and name in _modules():
        _warn_once()
        return getattr(import_module(_modules()[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, imported or not, for completion."""
    return sorted({*globals(), *_modules()})
