"""Converts values of other libraries: database rows, arrays, data frames, numbers, attrs classes.

No library is imported: types are recognised by their documented methods.
"""

from collections.abc import Mapping
from typing import Any, Final

NO_VALUE: Final = object()
"""The result for a value that is not recognised."""

MOST_CELLS = 1_000_000
"""Maximum number of elements of an array that is converted."""


def native(value: Any) -> Any:
    """Convert a value of another library to Python's own types; NO_VALUE if it is not recognised.

    Raises:
        ValueError: It is too large.
        Exception: Its own methods may raise anything.
    """
    kind = type(value)
    if hasattr(kind, "tolist") and (hasattr(value, "dtype") or hasattr(value, "typecode")):  # numpy, torch, array
        _check_size(value)
        return value.tolist()
    if hasattr(kind, "to_dicts"):  # a polars data frame
        return value.to_dicts()
    if hasattr(kind, "to_dict") and hasattr(value, "columns"):  # a pandas data frame
        _check_size(value)
        return value.to_dict(orient="records")
    if hasattr(kind, "to_list") and hasattr(value, "dtype"):  # a polars series
        return value.to_list()
    if isinstance(mapping := getattr(value, "_mapping", None), Mapping):  # a row of SQLAlchemy
        return dict(mapping)
    if hasattr(kind, "_asdict"):
        return value._asdict()
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):  # a row of sqlite3, asyncpg
        names = list(value.keys())  # iterating the row itself would yield its values
        return {name: value[name] for name in names}
    if fields := getattr(kind, "__attrs_attrs__", None):
        return {field.name: getattr(value, field.name) for field in fields}
    return NO_VALUE


def _check_size(value: Any) -> None:
    size = getattr(value, "size", 0)
    if isinstance(size, int) and size > MOST_CELLS:
        raise ValueError(f"it has {size:,} values, of {MOST_CELLS:,} at most; return a part of it, or a summary")
