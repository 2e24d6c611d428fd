"""Load a user's object by its reference, `package.module:attribute`, with errors that say what to fix."""

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from pydantic import ValidationError

from holdfast.config.programs import PACKAGE
from holdfast.errors import LoadError

_INSTALLED: Final = (PACKAGE, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")))

T = TypeVar("T")


def load(reference: str, kind: type[T]) -> T:
    """Import a module and return its attribute, which must be a `kind`.

    The current directory is searched last, so a file there cannot shadow an installed module or ours.

    Args:
        reference: `package.module:attribute`, for example `mycompany.agents:catalog`.
        kind: The class that the object must be an instance of; `object` for any.

    Raises:
        LoadError: The reference is malformed, the import fails, or the module has no such attribute of that type.
    """
    name, colon, attribute = reference.partition(":")
    if not (name and colon and attribute.isidentifier()):
        raise LoadError(f"'{reference}' does not name an object: write package.module:attribute.")
    module = _import(name, reference)
    try:
        value = getattr(module, attribute)
    except AttributeError as error:
        message = f"'{reference}': the module {name} has no attribute '{attribute}'. {_names(module, kind)}"
        raise LoadError(message + _precedence(module)) from error
    if not isinstance(value, kind):
        raise LoadError(f"'{reference}' is a {type(value).__name__}, not a {kind.__name__}. {_names(module, kind)}")
    return value


def _import(name: str, reference: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise LoadError(
                f"'{reference}': there is no module '{missing}', neither installed nor in {here}. "
                "Check the spelling, or run this command from the folder that contains it."
            ) from error
        raise LoadError(f"'{reference}': importing {name} failed{_location(error)}: {error}.") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {_message(error)}".rstrip(": ")
        raise LoadError(f"'{reference}': importing {name} failed{_location(error)}: {reason}.") from error


def _message(error: BaseException) -> str:
    """Return the message of an error; of pydantic's errors, without values and links."""
    if not isinstance(error, ValidationError):
        return str(error)
    problems = (
        ": ".join([".".join(map(str, (error.title, *each["loc"]))), each["msg"].removeprefix("Value error, ")])
        for each in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(problems)


def _location(error: BaseException) -> str:
    """Return ` at FILE, line N` for the failed import, if possible in the user's own files; empty if unknown."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}, line {error.lineno}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_machinery(each.filename)]
    own = [each for each in frames if not any(Path(each.filename).is_relative_to(path) for path in _INSTALLED)]
    last = (own or frames)[-1:]
    return f" at {last[0].filename}, line {last[0].lineno}" if last else ""


def _is_machinery(filename: str) -> bool:
    return filename.startswith("<frozen ") or filename in (__file__, importlib.__file__)


def _precedence(module: ModuleType) -> str:
    """Name the imported file if the current folder has a module of that name, too; otherwise return an empty text."""
    here, top = Path.cwd(), module.__name__.partition(".")[0]
    own = (here / top).is_dir() or (here / f"{top}.py").exists()
    file = getattr(module, "__file__", None)
    if file is None or not own or Path(file).is_relative_to(here):
        return ""
    return f" It is {file}, which is installed, and precedes the one in {here}: rename yours."


def _names(module: ModuleType, kind: type[object]) -> str:
    """List the module's public names of the right type; without any, all its public names."""
    public = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    fitting = sorted(name for name, value in public.items() if isinstance(value, kind))
    if fitting and kind is not object:
        return f"It has these of type {kind.__name__}: {', '.join(fitting)}."
    return f"Its names are: {', '.join(sorted(public))}." if public else "It has no public names."
