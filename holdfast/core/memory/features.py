"""features.json: a list of features, at the top or as `{"features": […]}`, each with a name and whether it passes.

An edit replaces the bytes of one value, or adds one field to one object, and keeps the file's layout. A file that
cannot be read is never written.
"""

import json

from holdfast.core.base.models import Frozen
from holdfast.core.memory.errors import FeatureNotFound
from holdfast.core.memory.json_spans import JsonObject, invalid, listed_objects
from holdfast.core.memory.markdown import flat

NAMED = 10
"""Maximum number of features that an error lists."""

NAMES = ("id", "name", "title", "description")
"""Fields that may hold a feature's name, in order of precedence."""
DONE = ("passing", "passed", "pass", "passes", "done", "complete", "completed", "true")
"""Values of `status`, case-insensitive, that mean the feature passes."""


class Feature(Frozen):
    """A feature in features.json."""

    name: str
    """The first that exists of `id`, `name`, `title` and `description`."""
    passes: bool
    description: str = ""
    line: int
    """The line on which its object begins, from 1."""


def parse_features(text: str) -> tuple[Feature, ...]:
    """Parse the features, in the order of the file.

    Raises:
        FeaturesInvalid: The text is not such a list, or two features share a name; names the line and column.
    """
    return tuple(feature for _, feature in _features(text))


def mark_feature(text: str, name: str, *, passes: bool = True) -> str:
    """Set whether a feature passes; the text stays unchanged if it already says so.

    Args:
        text: The content of features.json.
        name: The feature's id, name, title or description.
        passes: Whether it passes.

    Raises:
        FeatureNotFound: No feature has this name, or several have it.
        FeaturesInvalid: The file cannot be read.
    """
    listed = _features(text)
    normalised = " ".join(name.split())
    by_name = [each for each in listed if each[1].name == normalised]
    matches = by_name or [each for each in listed if normalised in _names(each[0])]
    if len(matches) != 1:
        open_ones = [repr(flat(feature.name, 80)) for _, feature in listed if not feature.passes]
        more = f" and {len(open_ones) - NAMED:,} more" if len(open_ones) > NAMED else ""
        count = "several features" if matches else "no feature"
        raise FeatureNotFound(
            f"features.json has {count} {flat(name, 200)!r}; the features that do not pass: "
            f"{', '.join(open_ones[:NAMED]) or 'none'}{more}"
        )
    ((item, feature),) = matches
    if feature.passes == passes:
        return text
    if "passes" not in item.members and (status := item.members.get("status")):
        return text[: status.value_start] + _status(listed, passes=passes) + text[status.end :]
    value = "true" if passes else "false"
    if member := item.members.get("passes"):
        return text[: member.value_start] + value + text[member.end :]
    *_, last = item.members.values()
    colon = text[last.key_end : last.value_start]
    return f'{text[: last.end]},{item.gap}"passes"{colon}{value}{text[last.end :]}'


def _status(listed: list[tuple[JsonObject, Feature]], *, passes: bool) -> str:
    """Return the status word that the file uses elsewhere, as JSON."""
    used = [each.members["status"].value for each, _ in listed if "status" in each.members]
    words = (word for word in used if isinstance(word, str) and (word.casefold() in DONE) == passes)
    return json.dumps(next(words, "passing" if passes else "failing"), ensure_ascii=False)


def _features(text: str) -> list[tuple[JsonObject, Feature]]:
    lines, listed, seen = _Lines(text), list[tuple[JsonObject, Feature]](), dict[str, int]()
    for item in listed_objects(text):
        names = _names(item)
        if not names:
            raise invalid(text, item.start, f"a feature needs one of {', '.join(NAMES)}")
        line = lines.of(item.start)
        if names[0] in seen:
            raise invalid(text, item.start, f"{flat(names[0], 80)!r} is listed already, at line {seen[names[0]]}")
        seen[names[0]] = line
        description = item.members.get("description")
        shown = flat(str(description.value), 2_000) if description else ""
        listed.append((item, Feature(name=names[0], passes=_passes(text, item), description=shown, line=line)))
    return listed


def _names(item: JsonObject) -> list[str]:
    values = [item.members[name].value for name in NAMES if name in item.members]
    # In Python, bool is a subclass of int.
    named = [str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)]
    return [" ".join(name.split()) for name in named if name.strip()]


def _passes(text: str, item: JsonObject) -> bool:
    if member := item.members.get("passes"):
        if not isinstance(member.value, bool | None):
            raise invalid(text, member.value_start, '"passes" must be true or false')
        return bool(member.value)
    status = item.members.get("status")
    return status is not None and isinstance(status.value, str) and status.value.casefold() in DONE


class _Lines:
    """Finds the line numbers of ascending positions in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def of(self, position: int) -> int:
        self._line += self._text.count("\n", self._at, position)
        self._at = position
        return self._line
