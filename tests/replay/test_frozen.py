"""I8: everything that an older release stored, signed or named keeps its meaning (docs/adr/0016-frozen-formats.md)."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.replay.compare import ADDITIVE, BREAKING, changes, report
from tests.replay.formats import Formats, formats
from tests.replay.freeze import FROZEN, WRITTEN, read
from tests.replay.goldens import read as read_written
from tests.replay.releases import CURRENT, is_released

RELEASES = sorted(file.stem for file in FROZEN.glob("*.json"))

now = cache(formats)


def frozen(release: str) -> Formats:
    """Return the frozen formats of a release, without its written output."""
    return {section: entries for section, entries in read(release).items() if section != WRITTEN}


def test_this_release_has_frozen_its_formats() -> None:
    """The formats of the current code are those in the file of this version."""
    assert (
        differences := report(changes(frozen(CURRENT), now()), before=f"{CURRENT} as frozen", after="this code")
    ) == "", differences


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_is_broken(release: str) -> None:
    """Since each release, formats have only been extended."""
    broken = [change for change in changes(frozen(release), now()) if change.breaking]
    assert not broken, report(broken, before=release, after="this code")


@pytest.mark.parametrize("release", RELEASES)
def test_the_output_of_a_release_is_still_readable(release: str) -> None:
    """A block of the record and an encrypted payload of each release yield their original content."""
    stored = read(release)
    lines, payload = read_written(stored[WRITTEN])
    assert lines == [line for name, line in sorted(stored["golden"].items()) if name.startswith("log ")]
    assert payload == '{"task":"pay"}'


def test_formats_are_the_same_each_time() -> None:
    """No frozen value depends on the time, on chance, or on the machine."""
    assert changes(now(), formats()) == []


# Results of the comparison. Each alteration is applied to frozen formats.

Alter = Callable[[Any], object]

BROKEN: dict[str, Alter] = {
    "a renamed field": lambda old: old["events"]["run_finished"]["fields"].update(
        outcom=old["events"]["run_finished"]["fields"].pop("outcome")
    ),
    "a changed default": lambda old: old["models"]["Limits"].update(max_steps="integer = 7"),
    "a changed type": lambda old: old["models"]["RunInput"].update(depth="string = 0"),
    "a narrower union": lambda old: old["models"]["RunInput"].update(depth="integer | null | string = 0"),
    "a required field that is new": lambda old: old["models"]["RunResult"].pop("steps"),
    "a removed event type": lambda old: old["events"].update(run_paused={"schema_version": 1, "fields": {}}),
    "a removed model": lambda old: old["models"].update(Gone={"at": "string"}),
    "a renamed signal": lambda old: old["workflows"]["AgentRunWorkflow"].update({"signal accept": "handled"}),
    "a later signal": lambda old: old["signals"].update(say="from level 3"),
    "a renamed activity": lambda old: old["activities"].update(think=old["activities"].pop("call_llm")),
    "another answer": lambda old: old["activities"].update(archive="ArchiveRequest -> Done"),
    "a removed search attribute": lambda old: old["search attributes"].update(HoldfastCost="Float"),
    "an edited migration": lambda old: old["migrations"].update({"0001_effects": "0" * 64}),
    "a removed migration": lambda old: old["migrations"].update({"0000_first": "0" * 64}),
    "another signed format": lambda old: old["golden"].update({"signed Decision 0": "alice approves 1"}),
    "another seal": lambda old: old["golden"].update(seal="6b31"),
    "other words in an event": lambda old: old["golden"].update({"log 14": "{}"}),
    "a renamed policy field": lambda old: old["policy file"]["RuleForm"].update(rule="string"),
    "an older schema version": lambda old: old["events"]["run_finished"].update(schema_version=2),
}

ADDED: dict[str, Alter] = {
    "a field with a default": lambda old: old["events"]["run_finished"]["fields"].pop("cause"),
    "an event type": lambda old: old["events"].pop("run_reset"),
    "a model with a required field": lambda old: old["models"].pop("ToolCall"),
    "a value": lambda old: old["models"]["ToolOutcome"].update(status='"failed" | "ok"'),
    "a signal": lambda old: old["workflows"]["AgentRunWorkflow"].pop("signal say"),
    "an activity": lambda old: old["activities"].pop("notify"),
    "a migration": lambda old: old["migrations"].pop("0005_blocks"),
    "a search attribute": lambda old: old["search attributes"].pop("HoldfastStep"),
    "a feature level": lambda old: old["feature levels"].pop("0"),
}


def alter_frozen(alter: Alter) -> Formats:
    """Return formats that an older release may have had."""
    old = copy.deepcopy(now())
    alter(old)
    return old


@pytest.mark.parametrize("alter", BROKEN.values(), ids=BROKEN)
def test_a_change_that_breaks_older_data_is_found(alter: Alter) -> None:
    """The report names it, and says how to make such a change."""
    differences = changes(alter_frozen(alter), now())
    assert [change for change in differences if change.breaking]
    assert report(differences, before="0.1.0", after="this code").endswith(BREAKING)


@pytest.mark.parametrize("alter", ADDED.values(), ids=ADDED)
def test_an_addition_is_found_and_allowed(alter: Alter) -> None:
    """The report names it, and says that it has to be frozen."""
    differences = changes(alter_frozen(alter), now())
    assert differences
    assert not [change for change in differences if change.breaking]
    assert report(differences, before="0.1.0", after="this code").endswith(ADDITIVE)


def test_an_event_of_a_new_schema_version_may_have_any_fields() -> None:
    """Its upcaster converts older ones; `tests/unit/core/log/test_upcasters.py` fails if there is none."""
    later = copy.deepcopy(now())
    later["events"]["run_finished"].update(schema_version=2, fields={"how": "string"})
    assert changes(now(), later) == []


def test_a_report_of_long_values_shows_where_they_differ() -> None:
    """For two long lines, the report shows the surroundings of the first difference."""
    before, after = ({"golden": {"log 00": 300 * "x" + each + 300 * "y"}} for each in ("<was>", "<is>"))
    text = report(changes(before, after), before="a", after="b")
    assert "<was>" in text
    assert "<is>" in text
    assert 200 * "y" not in text


def test_a_report_shows_both_sides() -> None:
    """A difference has its path, the old value and the new one."""
    differences = changes(
        {"models": {"Limits": {"steps": "integer = 1"}}}, {"models": {"Limits": {"steps": "integer = 2"}}}
    )
    assert "! models / Limits / steps:\n      was integer = 1\n      is  integer = 2" in report(
        differences, before="a", after="b"
    )


@pytest.mark.parametrize(
    ("heading", "released"),
    [
        ("## [0.2.0] - 2026-05-01", True),
        ("## [Unreleased]", False),
        ("## [0.2.0]", False),
        ("## [0.2.0] - soon", False),
    ],
)
def test_a_release_is_out_when_the_changelog_has_its_date(heading: str, released: bool) -> None:
    """A published release is never frozen or recorded again."""
    assert is_released("0.2.0", f"# Changelog\n\n{heading}\n") is released
