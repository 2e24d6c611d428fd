"""Forged files of trees, signed by their exporter: sub-agents' logs dropped, swapped, truncated or foreign."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.authority.policy import Policy, allow
from holdfast.core.budget.budget import Budget
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, RunReset, RunStarted, SubagentEnded, SubagentStarted
from holdfast.core.stores import EffectRow
from holdfast.portable.format.layout import Entry, Unsound, directory, read_directory
from holdfast.portable.format.members import (
    CHILDREN,
    LEDGER,
    LOG,
    MANIFEST,
    MAX_LEVELS,
    MAX_NAME_BYTES,
    REDACTED_LOG,
    child_member,
    rank,
)
from holdfast.portable.verify import FileVerification
from tests.support.families import Tree, family
from tests.support.portable_files import (
    ALICE,
    SIGNER,
    Parts,
    export_tree,
    independent,
    ours,
    packed,
    parts_of,
    rebuilt,
    row_line,
)

OTHER = "its run did not end as the log above it has it: "
BEGAN = "its run did not begin as the log above it has it: "


def judged(folder: Path, content: bytes) -> FileVerification:
    """Write and verify a file."""
    path = folder / "forged.holdfast"
    path.write_bytes(content)
    return ours(path)


def rechained(events: Sequence[AgentEvent]) -> list[AgentEvent]:
    """Return other events in a correct chain."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    return list(log.events)


def forged(tree: Tree, path: str, change: Callable[[AgentEvent], AgentEvent | None]) -> bytes:
    """Return the file of a tree in which events of one log are altered or missing."""
    events = [changed for event in tree[path] if (changed := change(event))]
    return export_tree({**tree, path: rechained(events)})


def replaced(parts: Parts, **contents: bytes) -> Parts:
    """Return members with other contents, by name."""
    return [(name, contents.get(name, content)) for name, content in parts]


# Names.


@pytest.mark.parametrize(
    "path",
    [
        *(
            "..",
            "../1",
            "1/..",
            "1/../2",
            "/1",
            "1//2",
            "",
            ".",
            ".1",
            "1.",
            "1..2",
            "0",
            "01",
            "1.0",
            "+1",
            "-1",
            "1 ",
        ),
        *(
            "1_0",
            "\uff11",
            "\u0663",
            "1\n",
            "1e3",
            "t.1",
            "1.t",
            "1" * 10,
            ".".join("1" * (MAX_LEVELS + 1)),
            "1." * 5_000 + "1",
        ),
    ],
)
def test_a_sub_agent_has_exactly_one_name(tmp_path: Path, path: str) -> None:
    """A name has only the numbers of the calls: no other spelling, no path that leads elsewhere, no thousand levels."""
    name = f"{CHILDREN}{path}/log.jsonl"
    assert rank(name) is None
    assert independent().rank(name) is None
    if name.isascii() and len(name) < 60_000:
        parts = parts_of(export_tree(family()))
        first = dict(parts)[child_member(LOG, "1")]
        at = next(index for index, (each, _) in enumerate(parts) if each.startswith("context/"))
        report = judged(tmp_path, rebuilt([*parts[:at], (name, first), *parts[at:]], ALICE))
        assert (report.ok, report.where) == (False, "zip")
        with pytest.raises(independent().Unsound, match="zip: "):
            independent().verify(tmp_path / "forged.holdfast", SIGNER)


def test_a_sub_agent_has_no_other_members() -> None:
    """A sub-agent has a log and a ledger only: artifacts are shared, and derived content is not stored."""
    for kind in (
        "",
        "artifacts/" + "0" * 64,
        "context.json",
        "log.jsonl/x",
        "LOG.jsonl",
        "log.jsonl\0",
        "manifest.json",
    ):
        assert rank(f"{CHILDREN}1/{kind}") is None
        assert independent().rank(f"{CHILDREN}1/{kind}") is None
    assert rank(CHILDREN) is independent().rank(CHILDREN) is None
    deepest = child_member(REDACTED_LOG, ".".join(["123456789"] * MAX_LEVELS))
    assert rank(deepest)
    assert len(deepest) <= MAX_NAME_BYTES


def test_sub_agents_are_listed_once_and_in_order() -> None:
    """Each comes after the one above it, in numeric order, log before ledger, and none twice."""
    names = [child_member(name, path) for path in ("2", "2.1", "2.10", "10", "10.2") for name in (LOG, LEDGER)]
    for module_rank in (rank, independent().rank):
        places: list[Any] = [module_rank(name) for name in names]
        assert places == sorted(places)
    entries = [Entry(name, 0, 0) for name in names]
    assert [each.entry.name for each in read_directory(directory(entries))] == names
    for wrong in ([*entries, entries[-1]], [entries[2], entries[0]], [entries[1], entries[0]], entries[::-1]):
        with pytest.raises(Unsound, match="out of order, or there twice"):
            read_directory(directory(wrong))


@pytest.mark.extended
def test_a_directory_of_the_longest_names_is_read() -> None:
    """A file may have thousands of sub-agents, each with a name as long as the format allows."""
    above = ".".join(["123456789"] * (MAX_LEVELS - 1))
    entries = [Entry(child_member(LOG, f"{above}.{100_000_000 + number}"), 0, 0) for number in range(60_000)]
    assert len(read_directory(directory(entries))) == 60_000


# Lists of a manifest.


def test_a_sub_agent_needs_its_parent_and_its_log(tmp_path: Path) -> None:
    """Both verifiers reject a list with an orphaned or repeated log, or with a ledger alone."""
    whole = parts_of(export_tree(family()))
    redacted = dict(parts_of(export_tree(family(), redact=True)))
    second, name = child_member(LOG, "1.1"), child_member(REDACTED_LOG, "1.1")
    at = [each for each, _ in whole].index(second)
    for parts in (
        [part for part in whole if "/children/1/" not in part[0]],
        [part for part in whole if part[0] != second],
        [*whole[: at + 1], (name, redacted[name]), *whole[at + 1 :]],
        [(name, redacted[name]) if part[0] == second else part for part in whole],
    ):
        report = judged(tmp_path, rebuilt(parts, ALICE))
        assert (report.ok, report.where) == (False, MANIFEST)
        with pytest.raises(independent().Unsound, match=r"manifest\.json: "):
            independent().verify(tmp_path / "forged.holdfast", SIGNER)


def test_both_verifiers_detect_the_log_of_another_thread(tmp_path: Path) -> None:
    """Swapped sub-agents, an empty log, the parent's own log and a foreign thread's log are detected."""
    parts = parts_of(export_tree(family()))
    first, second = child_member(LOG, "1"), child_member(LOG, "1.1")
    have = dict(parts)
    for name, content in ((first, have[second]), (second, have[first]), (first, have[LOG]), (second, b"")):
        report = judged(tmp_path, rebuilt(replaced(parts, **{name: content}), ALICE))
        assert (report.ok, report.where, report.position) == (False, name, 0), report
        with pytest.raises(independent().Unsound, match=f"{name}: event 0: "):
            independent().verify(tmp_path / "forged.holdfast", SIGNER)


# Logs compared with each other.


def test_a_dropped_sub_agent_is_reported_unless_the_manifest_lists_it(tmp_path: Path) -> None:
    """The manifest lists omitted logs, so that an incomplete file does not look complete."""
    tree = family()
    parts = parts_of(export_tree(tree))
    without = [part for part in parts if "/children/1.1/" not in part[0]]
    report = judged(tmp_path, rebuilt(without, ALICE))
    assert (report.ok, report.where) == (False, child_member(LOG, "1.1"))
    assert "does not say that it was left out" in report.reason
    assert judged(tmp_path, rebuilt(without, ALICE, left_out=("subagents",))).ok


def test_the_log_of_another_tree_is_detected(tmp_path: Path) -> None:
    """It has the same thread, call and run, but another task, or another answer than the parent read."""
    tree = family()
    for other, why in (
        (family(task="Something else."), BEGAN),
        (family(answer="something else"), OTHER),
        (family(end=False), OTHER),
    ):
        for path in ("1", "1.1"):
            report = judged(tmp_path, export_tree({**tree, path: other[path]}))
            assert (report.ok, report.where) == (False, child_member(LOG, path))
            assert report.reason.startswith(why), report.reason


def test_a_truncated_sub_agent_is_detected(tmp_path: Path) -> None:
    """A log that is cut anywhere before its end is detected, although the exporter signed the rest."""
    tree = family()
    for length in range(1, len(tree["1.1"])):
        report = judged(tmp_path, export_tree({**tree, "1.1": tree["1.1"][:length]}))
        assert (report.ok, report.where) == (False, child_member(LOG, "1.1")), length


def test_a_sub_agent_begins_as_its_parent_started_it(tmp_path: Path) -> None:
    """Its run, agent, lineage, depth and inherited policies are those of the call that started it."""
    tree = family()
    lax = Policy(rules=(allow("look"),))
    for update, words in (
        ({"first_run_id": "r9"}, "the log has no run r1"),
        ({"agent": "other"}, "it is of agent 'other'"),
        ({"depth": 3}, "it has depth 3"),
        ({"policies": (lax,)}, "other policies were handed down"),
        ({"policies": ()}, "other policies were handed down"),
        ({"lineage": None}, "it claims no parent"),
        ({"sealed": False}, "it claims no parent"),
    ):

        def change(event: AgentEvent, update: Any = update) -> AgentEvent:
            return event.model_copy(update=update) if isinstance(event, RunStarted) else event

        report = judged(tmp_path, forged(tree, "1", change))
        assert (report.ok, report.where) == (False, child_member(LOG, "1")), update
        # Some changes affect what the sub-agent itself could do: then its own log is inconsistent.
        assert words in report.reason or report.position is not None, report

    def lineage(event: AgentEvent) -> AgentEvent:
        if isinstance(event, RunStarted) and event.lineage:
            return event.model_copy(update={"lineage": event.lineage.model_copy(update={"key": "f" * 40})})
        return event

    assert "another lineage" in judged(tmp_path, forged(tree, "1.1", lineage)).reason


def test_a_sub_agent_has_what_its_parent_passed_down(tmp_path: Path) -> None:
    """A sub-agent has the reserved allowance with the remaining time.

    Its constraints, trust level and requesters are those of its parent.
    """
    tree = family(budget=Budget(steps=40, tokens=400_000, seconds=600), cannot=True)
    report = judged(tmp_path, export_tree(tree))
    assert report.ok, report
    (begun,) = (event for event in tree["2"] if isinstance(event, RunStarted))
    lineage, (kept,) = begun.lineage, begun.constraints
    assert lineage
    assert lineage.allowance
    allowance = lineage.allowance

    def given(**update: Any) -> dict[str, object]:
        return {"lineage": lineage.model_copy(update=update)}

    def of_budget(**update: Any) -> dict[str, object]:
        return given(allowance=allowance.model_copy(update=update))

    updates: tuple[tuple[dict[str, object], str], ...] = (
        (of_budget(tokens=400_000), "its allowance is not what was reserved for it"),
        (of_budget(tokens=1), "its allowance is not what was reserved for it"),
        (of_budget(usd="9"), "its allowance is not what was reserved for it"),
        (of_budget(seconds=601), "the time of its allowance is not what the budget had left"),
        (of_budget(seconds=None), "the time of its allowance is not what the budget had left"),
        (given(allowance=None), "its allowance is not what was reserved for it"),
        ({"constraints": ()}, "other constraints were handed down to it"),
        ({"constraints": (kept.model_copy(update={"call_digest": "0" * 64}),)}, "other constraints were handed down"),
        ({"constraints": (kept, kept)}, "other constraints were handed down to it"),
        ({"trust": "person"}, "it has trust level 'person'"),
        (given(requesters=("mallory",)), "others had asked the run above"),
        (given(requesters_unproven=True), "others had asked the run above"),
    )
    for update, words in updates:

        def change(event: AgentEvent, update: Any = update) -> AgentEvent:
            return event.model_copy(update=update) if isinstance(event, RunStarted) else event

        # Only its first events: later ones depend on the inherited values, so they would not follow from these.
        report = judged(tmp_path, forged({"": tree[""], "2": tree["2"][:2]}, "2", change))
        assert (report.ok, report.where) == (False, child_member(LOG, "2")), update
        assert f"{BEGAN}{words}" in report.reason, (update, report)


def test_a_parent_without_a_budget_passes_down_no_allowance(tmp_path: Path) -> None:
    """A sub-agent that claims an allowance has fabricated it."""
    tree = family()

    def change(event: AgentEvent) -> AgentEvent:
        if isinstance(event, RunStarted) and event.lineage:
            claimed = event.lineage.model_copy(update={"allowance": Budget(tokens=5)})
            return event.model_copy(update={"lineage": claimed})
        return event

    report = judged(tmp_path, forged({**tree, "1.1": tree["1.1"][:2]}, "1.1", change))
    assert "its allowance is not what was reserved for it" in report.reason


def test_a_parent_that_claims_another_end_is_detected(tmp_path: Path) -> None:
    """The parent's log may claim only what the sub-agent's log has: answer, steps, tokens and failure."""
    tree = family()

    def claims(update: Mapping[str, object]) -> bytes:
        def change(event: AgentEvent) -> AgentEvent:
            return event.model_copy(update=update) if isinstance(event, SubagentEnded) else event

        # If only the end remains, no call has read the text: its digest is all that the log has.
        events = tree[""][: next(event.position for event in tree[""] if isinstance(event, SubagentEnded)) + 1]
        return export_tree({**tree, "": rechained([change(event) for event in events])})

    for update in (
        {"said": "0" * 64},
        {"steps": 7},
        {"trust": "person"},
        {"status": "failed"},
        {"status": "cancelled"},
    ):
        report = judged(tmp_path, claims(update))
        assert not report.ok, update
        assert report.where in (LOG, child_member(LOG, "1")), update


def test_an_end_read_from_the_permanent_record_is_checked(tmp_path: Path) -> None:
    """If Temporal has removed the sub-agent, its answer has trust level web, and its steps are unknown.

    The answer must still be its own, and a claim of a higher trust level is reported.
    """
    tree = family(from_record=True)
    report = judged(tmp_path, export_tree(tree))
    assert report.ok, report
    other = family(answer="something else")
    assert judged(tmp_path, export_tree({**tree, "1.1": other["1.1"]})).reason.startswith(OTHER)

    def change(event: AgentEvent) -> AgentEvent:
        return event.model_copy(update={"trust": "agent"}) if isinstance(event, SubagentEnded) else event

    events = tree["1"][: next(event.position for event in tree["1"] if isinstance(event, SubagentEnded)) + 1]
    cut = {"": tree[""][: next(e.position for e in tree[""] if isinstance(e, SubagentStarted)) + 1], "1": events}
    report = judged(tmp_path, forged({**cut, "1.1": tree["1.1"]}, "1", change))
    assert "its steps, tokens or trust level are other ones" in report.reason


def test_a_reset_explains_another_end_but_no_other_beginning(tmp_path: Path) -> None:
    """A run that Temporal has reset may end differently than its parent saw, but its start must match."""
    tree = family()
    events = tree["1.1"]
    reset = RunReset(at=events[-3].at, digest="", position=0)
    branch = rechained([*events[:-3], reset])
    report = judged(tmp_path, export_tree({**tree, "1.1": branch}))
    assert report.ok, report
    (excused,) = (each.why for each in report.unchecked if each.what == "subagents")
    assert excused.startswith("a reset of t.1.1 or"), "whoever writes a reset into a log is not believed in silence"
    other = family(task="Something else.")["1.1"]
    report = judged(tmp_path, export_tree({**tree, "1.1": rechained([*other[:-3], reset])}))
    assert report.reason.startswith(BEGAN)


def test_a_log_without_its_parents_call_is_detected(tmp_path: Path) -> None:
    """A sub-agent that nobody started is part of no tree, even if it is otherwise consistent."""
    tree = family()
    begun = next(event.position for event in tree[""] if isinstance(event, SubagentStarted))
    report = judged(tmp_path, export_tree({**tree, "": rechained(tree[""][:begun])}))
    assert (report.ok, report.where) == (False, child_member(LOG, "1"))
    assert "has started no such sub-agent" in report.reason


def test_the_ledger_of_a_sub_agent_is_compared_with_its_log(tmp_path: Path) -> None:
    """An effect that a log does not start is reported with the ledger that contains it."""
    parts = parts_of(export_tree(family()))
    name = child_member(LEDGER, "1.1")
    row = row_line(EffectRow("f" * 40, 0, "pay", None))
    report = judged(tmp_path, rebuilt(replaced(parts, **{name: row}), ALICE))
    assert (report.ok, report.where) == (False, name)
    report = judged(tmp_path, rebuilt([part for part in parts if part[0] != name], ALICE))
    assert (report.ok, report.where) == (False, name)
    assert packed(parts) == export_tree(family())
