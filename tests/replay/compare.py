"""Compare the formats of two releases, and give the required follow-up for each difference."""

from collections.abc import Iterator
from typing import Any, NamedTuple

ADDITIVE = """\
Additions only: older data stays readable. That is allowed; freeze it with this release:
    python -m tests.replay.freeze
An addition that a run records or sends (an event, a signal, a field that is not its default, a value) needs a feature
level, so that histories of older releases replay (holdfast/core/run/state/features.py)."""

BREAKING = """\
What an older release has written no longer means the same. Either undo the change, or
  - an event: raise its schema_version, and add an upcaster (holdfast/core/log/upcasters.py);
  - any other model: keep the old field, and add one with a default;
  - a name (signal, update, query, workflow, activity, search attribute, error type): keep it, and add another;
  - a migration: restore the file, and add a new one;
  - a golden value (digest, id, signed or sealed bytes, the log of a run): guard the new behaviour with a feature level,
    or with a version in what is signed or sealed.
See docs/adr/0016-frozen-formats.md. Before the first release that has the format, freeze it anew instead:
    python -m tests.replay.freeze"""


SHOWN = 200
"""The maximum length of a value that a report shows in full."""


class Change(NamedTuple):
    """One difference between two releases."""

    place: tuple[str, ...]
    before: str | None
    """None for an addition."""
    after: str | None
    """None for a removal."""
    whole: bool = False
    """The event or model that the field belongs to is new or removed, too."""

    @property
    def breaking(self) -> bool:
        """Whether data of the older release may become unreadable, or change its meaning."""
        if self.before is None:
            is_field = self.place[0] in ("events", "models", "policy file") and len(self.place) > 2
            return is_field and self.after is not None and " = " not in self.after and not self.whole
        if self.after is None or self.place[0] == "golden":
            return True
        return not _widened(self.before, self.after)

    def __str__(self) -> str:
        sign = "!" if self.breaking else "+"
        name = " / ".join(self.place)
        if self.before is None:
            return f"{sign} {name}: new: {self.after}"
        if self.after is None:
            return f"{sign} {name}: gone; it was {self.before}"
        before, after = _excerpts(self.before, self.after)
        return f"{sign} {name}:\n      was {before}\n      is  {after}"


def changes(before: Any, after: Any) -> list[Change]:
    """Return the differences between two releases' formats, in the order of their paths.

    A new schema version of an event allows any change of its fields: its upcaster has a test of its own.
    """
    return [change for change in _changes(before, after, ()) if not _upcast(change, before, after)]


def report(found: list[Change], *, before: str, after: str) -> str:
    """Return the changes between two releases, and the required follow-up; empty if there are none."""
    if not found:
        return ""
    breaking = any(change.breaking for change in found)
    lines = [f"The formats of {before} and of {after} differ:", "", *map(str, found), ""]
    return "\n".join([*lines, BREAKING if breaking else ADDITIVE])


def _changes(before: Any, after: Any, place: tuple[str, ...]) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _changes(before.get(name), after.get(name), (*place, name))
    elif isinstance(before, dict) or isinstance(after, dict):
        for name in sorted((before or {}) | (after or {})):
            for change in _changes((before or {}).get(name), (after or {}).get(name), (*place, name)):
                yield change._replace(whole=True)
    elif before != after:
        yield Change(place, _text(before), _text(after))


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Return both texts; for long ones, the surroundings of the first difference."""
    if max(len(before), len(after)) <= SHOWN:
        return before, after
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if len(set(pair)) > 1), len(before))
    begin = max(0, same - SHOWN // 2)
    first, second = (f"{'…' * bool(begin)}{text[begin : begin + SHOWN]}…" for text in (before, after))
    return first, second


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _upcast(change: Change, before: Any, after: Any) -> bool:
    section, kind, *_ = (*change.place, "")
    if section != "events" or kind not in before["events"] or kind not in after["events"]:
        return False
    return int(after["events"][kind]["schema_version"]) > int(before["events"][kind]["schema_version"])


def _widened(before: str, after: str) -> bool:
    """Return whether a field accepts everything that it accepted before, with the same default, and more."""
    kinds, _, default = before.partition(" = ")
    more, _, now = after.partition(" = ")
    while kinds[:1] == more[:1] and kinds[:1] in ("[", "{") and " | " not in _outside(kinds):
        kinds, more = kinds[1:-1], more[1:-1]
    return default == now and set(kinds.split(" | ")) < set(more.split(" | "))


def _outside(kinds: str) -> str:
    """Return the part of a type outside all brackets."""
    depth, outside = 0, ""
    for letter in kinds:
        depth += (letter in "[{") - (letter in "]}")
        outside += letter if not depth else ""
    return outside
