"""YAML with positions: plain values, and the line and column of each.

The text is untrusted: only tags of plain values are allowed, keys must be unique, and alias expansion is bounded.
Problems are collected instead of raised, so that a user sees all of them at once.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_VALUES = 100_000
"""The most values that a file may hold, with aliases expanded."""

MAX_DEPTH = 30

ValuePath = tuple[str | int, ...]
"""The path to a value: `("rules", 3, "when")`."""

Mark = tuple[int, int]
"""Line and column, from 1."""

_PLAIN = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Fault:
    """A problem with the YAML text itself."""

    path: ValuePath
    mark: Mark
    message: str


@dataclass
class MarkedYaml:
    """A parsed document with the position of each value."""

    value: Any = None
    readable: bool = False
    """Whether the text is valid YAML, so that `value` is set."""
    marks: dict[ValuePath, Mark] = field(default_factory=dict)
    """The start of each value."""
    keys: dict[ValuePath, Mark] = field(default_factory=dict)
    """The start of each field's name."""
    faults: list[Fault] = field(default_factory=list)

    def mark(self, path: ValuePath, *, key: bool = False) -> Mark:
        """Return the position of a value, or of its field name; of the nearest parent if the value is missing."""
        if key and path in self.keys:
            return self.keys[path]
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, (1, 1))


def read_yaml(text: str) -> MarkedYaml:
    """Parse a text as one YAML document."""
    marked = MarkedYaml()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        marked.faults.append(Fault((), (1, 1), "the document is nested too deeply"))
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        hint = '; quote a text that begins with *: "*"' if "alias" in message else ""
        marked.faults.append(Fault((), (where.line + 1, where.column + 1) if where else (1, 1), message + hint))
    except Exception as error:  # PyYAML reports some malformed escapes and characters as other errors
        marked.faults.append(Fault((), _position(error, text), _message(error)))
    else:
        marked.readable = True
        if node is not None:
            marked.value = _Converter(marked).value(node, ())
    return marked


class _Converter:
    """Converts YAML nodes into plain values."""

    def __init__(self, marked: MarkedYaml) -> None:
        self._marked = marked
        self._constructor = SafeConstructor()
        self._values = 0

    def value(self, node: yaml.Node, path: ValuePath) -> Any:
        """Return the plain value of a node."""
        self._values += 1
        self._marked.marks[path] = _mark(node)
        if len(path) > MAX_DEPTH:
            return self._fault(path, node, "the value is nested too deeply")
        if self._values >= MAX_VALUES:
            if self._values == MAX_VALUES:
                self._fault((), node, f"the file has more than {MAX_VALUES:,} values, with aliases expanded")
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_PLAIN}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_PLAIN}seq":
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: ValuePath) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(path, key, "a field name has to be a word")
                continue
            name = str(key.value)
            below = (*path, name)
            if name in fields:
                first = self._marked.keys[below][0]
                self._fault(below, key, f"the field is repeated; the first one is on line {first}")
                continue
            self._marked.keys[below] = _mark(key)
            fields[name] = self.value(value, below)
        return fields

    def _scalar(self, node: yaml.Node, path: ValuePath) -> Any:
        construct: dict[str, Any] = {
            "null": self._constructor.construct_yaml_null,
            "bool": self._constructor.construct_yaml_bool,
            "int": self._constructor.construct_yaml_int,
            "float": self._constructor.construct_yaml_float,
        }
        kind = str(node.tag).removeprefix(_PLAIN)
        if isinstance(node, yaml.ScalarNode) and kind in ("str", "timestamp", "value", "merge"):
            return str(node.value)
        if kind not in construct or not isinstance(node, yaml.ScalarNode):
            return self._fault(path, node, f"the tag {node.tag!r} is not allowed")
        if kind in ("int", "float") and (why := _misread(node.value)):
            return self._fault(path, node, why)
        try:
            return construct[kind](node)
        except (ConstructorError, ValueError, LookupError, OverflowError):
            return self._fault(path, node, f"{str(node.value)[:40]!r} cannot be read as {kind}")

    def _fault(self, path: ValuePath, node: yaml.Node, message: str) -> None:
        self._marked.faults.append(Fault(path, _mark(node), message))


def _misread(text: str) -> str:
    """Return how YAML 1.1 misreads a number as people write it; empty for all others."""
    if ":" in text:
        return f"YAML reads {text[:40]} as a number in base 60; write a duration as 90m or 1.5h, or put text in quotes"
    digits = text.lstrip("+-")
    if digits.isdigit() and len(digits) > 1 and digits[0] == "0":
        return f"YAML reads {text[:40]} as an octal number; write it without the leading 0, or put text in quotes"
    return ""


def _mark(node: yaml.Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _position(error: Exception, text: str) -> Mark:
    before = text[: getattr(error, "position", 0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _message(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"YAML does not allow the character {error.character!r}"
    return f"the text is not valid YAML: {error}"
