"""YAML with places: plain values, and the line and column where each of them stands.

Nothing in the text is run or trusted: no tags but those of plain values, no key twice, a bound on what aliases may make
of a few lines. What is wrong is collected, not raised, so that somebody hears of all of it at once.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

MAX_VALUES = 100_000
"""Values that a file may come to, aliases written out."""

MAX_DEPTH = 30

Path = tuple[str | int, ...]
"""Where a value stands among the others: `("rules", 3, "when")`."""

Mark = tuple[int, int]
"""Line and column, from 1."""

_PLAIN = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with the text itself."""

    path: Path
    mark: Mark
    message: str


@dataclass
class Marked:
    """What a text says, and where."""

    value: Any = None
    readable: bool = False
    """Whether it is YAML at all, so that there is a value."""
    marks: dict[Path, Mark] = field(default_factory=dict)
    """Where each value begins."""
    keys: dict[Path, Mark] = field(default_factory=dict)
    """Where each field's name stands."""
    faults: list[Fault] = field(default_factory=list)

    def mark(self, path: Path, *, key: bool = False) -> Mark:
        """Where a value stands, or the field's name; if it is not there, what would hold it."""
        if key and path in self.keys:
            return self.keys[path]
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, (1, 1))


def read_yaml(text: str) -> Marked:
    """Read a text as one YAML document."""
    marked = Marked()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        marked.faults.append(Fault((), (1, 1), "it is nested too deeply"))
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        hint = '; a text that begins with * wants quotes: "*"' if "alias" in words else ""
        marked.faults.append(Fault((), (where.line + 1, where.column + 1) if where else (1, 1), words + hint))
    except Exception as error:  # PyYAML lets some malformed escapes and characters through as other errors
        marked.faults.append(Fault((), _place_of(error, text), _words_of(error)))
    else:
        marked.readable = True
        if node is not None:
            marked.value = _Reading(marked).value(node, ())
    return marked


class _Reading:
    """Takes values out of YAML's nodes."""

    def __init__(self, marked: Marked) -> None:
        self._marked = marked
        self._constructor = SafeConstructor()
        self._values = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        """The plain value of a node."""
        self._values += 1
        self._marked.marks[path] = _mark(node)
        if len(path) > MAX_DEPTH:
            return self._fault(path, node, "it is nested too deeply")
        if self._values >= MAX_VALUES:
            if self._values == MAX_VALUES:
                self._fault((), node, f"it comes to more than {MAX_VALUES:,} values, aliases written out")
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_PLAIN}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_PLAIN}seq":
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(path, key, "the name of a field is a word")
                continue
            name = str(key.value)
            below = (*path, name)
            if name in found:
                first = self._marked.keys[below][0]
                self._fault(below, key, f"it is there twice; the first one is in line {first}")
                continue
            self._marked.keys[below] = _mark(key)
            found[name] = self.value(value, below)
        return found

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
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
        try:
            return construct[kind](node)
        except (ConstructorError, ValueError, LookupError, OverflowError):
            return self._fault(path, node, f"{str(node.value)[:40]!r} cannot be read as {kind}")

    def _fault(self, path: Path, node: yaml.Node, message: str) -> None:
        self._marked.faults.append(Fault(path, _mark(node), message))


def _mark(node: yaml.Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _place_of(error: Exception, text: str) -> Mark:
    before = text[: getattr(error, "position", 0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _words_of(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"there is a character that YAML does not allow: {error.character!r}"
    return f"it is no YAML: {error}"
