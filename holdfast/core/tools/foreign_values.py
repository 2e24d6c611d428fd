"""Values of other libraries, by what they can do: rows of databases, arrays, tables, numbers, classes of attrs.

No library is imported: a type is recognised by its methods, as its documentation describes them.
"""

from collections.abc import Mapping
from typing import Any, Final

NO_VALUE: Final = object()
"""Nothing here recognises the value."""

MOST_CELLS = 1_000_000
"""The largest array that is written out."""


def native(value: Any) -> Any:
    """Return a value of another library in terms of Python's own types; NO_VALUE if it is not recognised.

    Raises:
        ValueError: It is too large to be written out.
        Exception: What its own methods raise.
    """
    kind = type(value)
    if hasattr(kind, "tolist") and (hasattr(value, "dtype") or hasattr(value, "typecode")):  # numpy, torch, array
        _check_size(value)
        return value.tolist()
    if hasattr(kind, "to_dicts"):  # a table of polars
        return value.to_dicts()
    if hasattr(kind, "to_dict") and hasattr(value, "columns"):  # a table of pandas
        _check_size(value)
        return value.to_dict(orient="records")
    if hasattr(kind, "to_list") and hasattr(value, "dtype"):  # a column of polars
        return value.to_list()
    if isinstance(mapping := getattr(value, "_mapping", None), Mapping):  # a row of SQLAlchemy
        return dict(mapping)
    if hasattr(kind, "_asdict"):
        return value._asdict()
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):  # a row of sqlite3, asyncpg
        names = list(value.keys())  # to iterate the row itself would give its values
        return {name: value[name] for name in names}
    if fields := getattr(kind, "__attrs_attrs__", None):
        return {field.name: getattr(value, field.name) for field in fields}
    return NO_VALUE


def _check_size(value: Any) -> None:
    size = getattr(value, "size", 0)
    if isinstance(size, int) and size > MOST_CELLS:
        raise ValueError(f"it has {size:,} values, of {MOST_CELLS:,} at most; return a part of it, or a summary")
