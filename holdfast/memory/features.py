"""features.json: a list of features, at the top or as `{"features": […]}`, each with a name and whether it passes.

A change touches the bytes of one value, or adds one field to one object; how people laid the file out stays. A file
that cannot be read is never written.
"""

import json

from holdfast.base.models import Frozen
from holdfast.memory.errors import FeatureNotFound
from holdfast.memory.json_spans import JsonObject, invalid, listed_objects
from holdfast.memory.markdown import flat

NAMED = 10
"""Features that an error names."""

NAMES = ("id", "name", "title", "description")
"""Fields that a feature may be named by, the first of them first."""
DONE = ("passing", "passed", "pass", "passes", "done", "complete", "completed", "true")
"""What a `status` says, in any case, of a feature that passes."""


class Feature(Frozen):
    """A feature, as a person or an initializer listed it."""

    name: str
    """The first of its `id`, `name`, `title` and `description`."""
    passes: bool
    description: str = ""
    line: int
    """Where its object begins, from 1."""


def parse_features(text: str) -> tuple[Feature, ...]:
    """The features, in the order of the file.

    Raises:
        FeaturesInvalid: It is no such list, or two features have one name; says at which line and column.
    """
    return tuple(feature for _, feature in _features(text))


def mark_feature(text: str, name: str, *, passes: bool = True) -> str:
    """Say of a feature whether it passes; where it says so already, the text stays as it is.

    Args:
        text: features.json.
        name: Its id, name, title or description.
        passes: Whether it does.

    Raises:
        FeatureNotFound: There is none of that name, or more than one.
        FeaturesInvalid: The file cannot be read.
    """
    listed = _features(text)
    wanted = " ".join(name.split())
    by_name = [each for each in listed if each[1].name == wanted]
    matches = by_name or [each for each in listed if wanted in _names(each[0])]
    if len(matches) != 1:
        open_ones = [repr(flat(feature.name, 80)) for _, feature in listed if not feature.passes]
        more = f" and {len(open_ones) - NAMED:,} more" if len(open_ones) > NAMED else ""
        said = "several features" if matches else "no feature"
        raise FeatureNotFound(
            f"features.json has {said} {flat(name, 200)!r}; those that do not pass: "
            f"{', '.join(open_ones[:NAMED]) or 'none'}{more}"
        )
    ((found, feature),) = matches
    if feature.passes == passes:
        return text
    if "passes" not in found.members and (status := found.members.get("status")):
        return text[: status.value_start] + _status(listed, passes=passes) + text[status.end :]
    value = "true" if passes else "false"
    if member := found.members.get("passes"):
        return text[: member.value_start] + value + text[member.end :]
    *_, last = found.members.values()
    colon = text[last.key_end : last.value_start]
    return f'{text[: last.end]},{found.gap}"passes"{colon}{value}{text[last.end :]}'


def _status(listed: list[tuple[JsonObject, Feature]], *, passes: bool) -> str:
    """The word for it that the file uses elsewhere, as JSON."""
    used = [each.members["status"].value for each, _ in listed if "status" in each.members]
    words = (word for word in used if isinstance(word, str) and (word.casefold() in DONE) == passes)
    return json.dumps(next(words, "passing" if passes else "failing"), ensure_ascii=False)


def _features(text: str) -> list[tuple[JsonObject, Feature]]:
    lines, listed, seen = _Lines(text), list[tuple[JsonObject, Feature]](), dict[str, int]()
    for found in listed_objects(text):
        names = _names(found)
        if not names:
            raise invalid(text, found.start, f"a feature needs one of {', '.join(NAMES)}")
        line = lines.of(found.start)
        if names[0] in seen:
            raise invalid(text, found.start, f"{flat(names[0], 80)!r} is listed already, at line {seen[names[0]]}")
        seen[names[0]] = line
        description = found.members.get("description")
        told = flat(str(description.value), 2_000) if description else ""
        listed.append((found, Feature(name=names[0], passes=_passes(text, found), description=told, line=line)))
    return listed


def _names(found: JsonObject) -> list[str]:
    values = [found.members[name].value for name in NAMES if name in found.members]
    # A bool is an int to Python.
    named = [str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)]
    return [" ".join(name.split()) for name in named if name.strip()]


def _passes(text: str, found: JsonObject) -> bool:
    if member := found.members.get("passes"):
        if not isinstance(member.value, bool | None):
            raise invalid(text, member.value_start, '"passes" must be true or false')
        return bool(member.value)
    status = found.members.get("status")
    return status is not None and isinstance(status.value, str) and status.value.casefold() in DONE


class _Lines:
    """Tells the line of a place in the text, for places that only go on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def of(self, place: int) -> int:
        self._line += self._text.count("\n", self._at, place)
        self._at = place
        return self._line
