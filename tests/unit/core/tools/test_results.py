"""Results of tools as text: values of other libraries, iterators, and errors with their causes."""

import asyncio
import itertools
import json
import math
import sqlite3
from array import array
from collections import UserDict, UserList, UserString
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.tools.failures import kind_of
from holdfast.core.tools.results import MOST_ITEMS, NOT_READ, NotAwaited, error_text, result_text


class Row:
    """A row as database drivers return it: neither a mapping nor a sequence."""

    def keys(self) -> list[str]:
        return ["id"]

    def __getitem__(self, name: str) -> int:
        return {"id": 7}[name]


class Number:
    """A number or an array of another library."""

    dtype = "int64"

    def __init__(self, value: Any, size: int = 1) -> None:
        self.value, self.size = value, size

    def tolist(self) -> Any:
        return self.value


class Frame:
    """A table of another library."""

    columns = ("a",)
    size = 1

    def to_dict(self, orient: str) -> Any:
        return {"records": [{"a": Number(1)}]}[orient]


class Attrs:
    """A class like one that attrs makes."""

    __attrs_attrs__ = (SimpleNamespace(name="x"),)
    x = Decimal("1.10")


class Bag:
    """A collection without a text of its own."""

    def __iter__(self) -> Iterator[int]:
        return iter((1, 2))


def row() -> sqlite3.Row:
    """A row of a real database."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    fetched = connection.execute("SELECT 1 AS a, 'x' AS b").fetchone()
    assert isinstance(fetched, sqlite3.Row)
    return fetched


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((number for number in (1, 2)), "[1, 2]"),
        ({"rows": map(str, (1, 2))}, '{"rows": ["1", "2"]}'),
        ([filter(None, (0, 1)), zip("a", "b", strict=True)], '[[1], [["a", "b"]]]'),
        (range(3), "[0, 1, 2]"),
        (row(), '{"a": 1, "b": "x"}'),
        ([row()], '[{"a": 1, "b": "x"}]'),
        (Row(), '{"id": 7}'),
        (Number(5), "5"),
        ({"n": Number(5)}, '{"n": 5}'),
        (Number([[1, 2], [3, math.nan]]), "[[1, 2], [3, null]]"),
        (array("i", [1, 2]), "[1, 2]"),
        (Frame(), '[{"a": 1}]'),
        (Attrs(), '{"x": "1.10"}'),
        (Bag(), "[1, 2]"),
        (UserString("text"), '"text"'),
        (UserList([1]), "[1]"),
        (UserDict({"a": 1}), '{"a": 1}'),
        (Path("a/b.txt"), '"a/b.txt"'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_other_libraries_are_written_as_plain_values(value: Any, text: str) -> None:
    """Iterators, rows, tables, arrays and numbers of any library are written as values."""
    assert result_text(value) == text


def test_values_that_are_too_large_are_bounded() -> None:
    """An endless iterator is cut, and says so; an array that would fill the memory is rejected."""
    items = json.loads(result_text({"n": itertools.count()}))["n"]
    assert (len(items), items[-1]) == (MOST_ITEMS + 1, NOT_READ)
    assert json.loads(result_text(range(10**12)))[-1] == NOT_READ
    with pytest.raises(ValueError, match="it has 1,000,001 values"):
        result_text(Number([], 1_000_001))


def test_an_unawaited_value_is_rejected() -> None:
    """A list of coroutines has done nothing, so it is rejected and not shown as text."""
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(NotAwaited, match="Future, which is still to be awaited"):
            result_text([loop.create_future()])
    finally:
        loop.close()


def test_errors_of_a_group_and_notes_are_described() -> None:
    """People and LLMs read the errors inside a group, at any depth, and the notes added to an error."""
    error = ValueError("no such file")
    error.add_note("while reading \udce9.txt")
    inner = ExceptionGroup("inner", [ConnectionError("warehouse is down"), error])
    text = error_text(ExceptionGroup("many", [inner, RuntimeError("x" * 5_000)]))
    assert text == (
        "ExceptionGroup: many (2 sub-exceptions): ConnectionError: warehouse is down; ValueError: no such file\n"
        "while reading ?.txt; and 1 more"
    )
    assert kind_of(inner) == "connection"
    many = error_text(ExceptionGroup("many", [ValueError(str(number)) for number in range(1_000)]))
    assert many.endswith("ValueError: 9; and 990 more")
