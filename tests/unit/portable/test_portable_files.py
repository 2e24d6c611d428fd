"""Portable files: their content, that any alteration is named, and that the independent verifier names the same."""

import asyncio
import base64
import hashlib
import io
import json
import random
import re
import struct
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError

from holdfast import Policy, ask
from holdfast.audit.evidence.anchors import NONE_GIVEN, Anchors
from holdfast.audit.evidence.file_anchors import OWN_SEALS
from holdfast.cli.screens.record_screens import file_screen
from holdfast.core.authority.signatures import public_key
from holdfast.core.base.canonical import canonical
from holdfast.core.lineage import Lineage
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import AgentEvent, RunStarted
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.state.features import KEEPS_TRACE
from holdfast.core.stores import EffectRow, aside_id
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.errors import EventUnreadable, ExportFailed
from holdfast.portable import judging, reader, writer
from holdfast.portable.envelope import _key
from holdfast.portable.format.conversation import conversation
from holdfast.portable.format.derived import DerivedMembers
from holdfast.portable.format.layout import Entry, Unsound, directory, read_directory
from holdfast.portable.format.members import (
    AGENTS,
    ARTIFACTS,
    CONTEXT,
    INTENT,
    KEYS,
    LEDGER,
    LOG,
    MANIFEST,
    NODES,
    SEALS,
    STATEMENT,
    is_log,
)
from holdfast.portable.format.origins import segments_of
from holdfast.portable.format.redaction import WITHOUT_BODY, redact_line, redact_row
from holdfast.portable.format.trajectory import trajectory
from holdfast.portable.verify import verify_file
from holdfast.portable.writer import new_file
from tests.replay.test_verifiers import recorded_logs, redigested
from tests.support.families import family
from tests.support.plays import play
from tests.support.portable_files import (
    ALICE,
    FOLDER,
    MALLORY,
    NODE_KEY,
    OTHER_NODE_KEY,
    SIGNER,
    Parts,
    export,
    export_tree,
    independent,
    ours,
    packed,
    parts_of,
    rebuilt,
    row_line,
    sealed,
)
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

Judgement = tuple[str, int | None]
"""The first fault of a file, and the position of its event."""
Mutate = Callable[[Parts, Sequence[Parts], random.Random], bytes]


def finished_log() -> list[AgentEvent]:
    """Return the log of a run with an approved and a denied call."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look", "pay", "wipe"))
    thread.finish(1, content="the secret of the tool")
    thread.decide("1", reason="because")
    thread.finish(2, content="paid")
    thread.reply(says("done"))
    thread.archive()
    return thread.log


def rows_of(events: Sequence[AgentEvent]) -> list[EffectRow]:
    """Return the ledger's row of the payment."""
    started = [event for event in events if event.type == "tool_call_started"]
    return [EffectRow(started[-1].key, 0, "pay", json.dumps({"status": "ok", "content": "paid"}))]


@cache
def sound_files() -> tuple[bytes, ...]:
    """Return sound files: of a run with a ledger, of recorded threads, of a redacted run, of one with artifacts, of two
    trees (one of them also redacted), and of a run with signed checkpoints (also redacted).
    """
    events = finished_log()
    own = export(events, thread="t", rows=rows_of(events))
    logs = recorded_logs("0.1.0")
    names = sorted(name for name, log in logs.items() if log[0].type == "run_started" and len(log) < 60)[:4]
    others = [export(logs[name], thread=logs[name][0].thread) for name in names]  # type: ignore[arg-type,union-attr]
    redacted = export(events, thread="t", rows=rows_of(events), redact=True)
    parts = parts_of(own)
    at = next(index for index, (name, _) in enumerate(parts) if name == CONTEXT)
    # The independent verifier does not check whether events refer to the artifacts.
    with_artifacts = [*parts[:at], *_artifacts(b"one", b"two" * 1000), *parts[at:]]
    tree = family()
    trees = (export_tree(tree), export_tree(family(answer="nothing")), export_tree(tree, redact=True))
    seals = sealed(events, (4, len(events)), thread="t") + sealed(events, (9,), thread="t", key=OTHER_NODE_KEY)
    with_seals = export(events, thread="t", rows=rows_of(events), seals=seals)
    redacted_with_seals = export(events, thread="t", redact=True, seals=seals)
    return own, *others, redacted, rebuilt(with_artifacts, ALICE), *trees, with_seals, redacted_with_seals


def _artifacts(*contents: bytes) -> Parts:
    import hashlib

    return sorted((ARTIFACTS + hashlib.sha256(content).hexdigest(), content) for content in contents)


def write(folder: Path, content: bytes) -> Path:
    """Write a file."""
    path = folder / "run.holdfast"
    path.write_bytes(content)
    return path


def independent_judgement(path: Path) -> Judgement | None:
    """Judge a file with the independent verifier; None for a sound one."""
    module, said = independent(), ""
    try:
        module.verify(path, SIGNER)
    except module.Unsound as error:
        said = str(error)
    if not said:
        return None
    match = re.match(r"([\w./]+)(?:: event (\d+))?: ", said)
    assert match, said
    return match[1], int(match[2]) if match[2] else None


# The content of a file.


def test_a_file_holds_the_log_byte_for_byte_and_its_derived_members(tmp_path: Path) -> None:
    """Any zip tool opens it, the same thread gives the same bytes, and intent and context show the request."""
    events = finished_log()
    file = export(events, thread="t", rows=rows_of(events))
    assert file == export(events, thread="t", rows=rows_of(events))
    with zipfile.ZipFile(write(tmp_path, file)) as read:
        assert read.testzip() is None
        parts = {name: read.read(name) for name in read.namelist()}
    assert [json.loads(line)["digest"] for line in parts[LOG].splitlines()] == [event.digest for event in events]
    intent, context, keys = (json.loads(parts[name]) for name in (INTENT, CONTEXT, KEYS))
    assert [task["content"] for task in intent["tasks"]] == ["the task"]
    assert (context["thread"], len(context["runs"]), context["runs"][0]["run_id"]) == ("t", 1, "r1")
    assert [json.loads(line)["hash"] for line in parts[AGENTS].splitlines()] == context["agents"]
    assert keys == {"approvers": [], "gateways": []}
    assert b"ed25519:YWFh" not in file, "the private key is not in it"
    result = ours(write(tmp_path, file))
    assert (result.ok, result.events, result.head, result.signers) == (True, len(events), events[-1].digest, (SIGNER,))


def test_a_file_names_where_its_thread_was_imported() -> None:
    """The file names the run that continued it, the event before the import, and who vouched for it."""
    there = Thread(agent_spec(), features=1)
    there.load(1)
    there = there.moved().imported()
    context = json.loads(dict(parts_of(export(there.log, thread="t", rows=())))[CONTEXT])
    (imported,) = context["imports"]
    (event,) = (event for event in there.log if event.type == "run_imported")
    assert (imported["position"], imported["run_id"]) == (event.position, event.run_id)
    assert imported["point"] == event.point.model_dump()


def test_a_moved_thread_keeps_its_trace() -> None:
    """Moved by this release, a thread has the trace of its beginning for good; one moved by 0.2.0 has another."""
    there = Thread(agent_spec(), features=KEEPS_TRACE)
    there.load(KEEPS_TRACE)
    log = there.moved().imported(features=KEEPS_TRACE).log
    (started,) = (event for event in log if event.type == "run_started")
    (imported,) = (event for event in log if event.type == "run_imported")
    for level, kept in ((1, False), (KEEPS_TRACE, True)):
        derived = DerivedMembers()
        derived.take(started.type, event_line(started))
        for number in (2, 3):  # it moves on, and back
            fields = {"first_run_id": f"r{number}", "features": level, "position": number}
            derived.take(imported.type, event_line(imported.model_copy(update=fields)))
        segments = segments_of(dict(derived.members())[CONTEXT])
        assert [each.first_run_id for each in segments] == ["r1", "r2", "r3"]
        assert len({each.trace_id for each in segments}) == (1 if kept else 3)
    forged = {"segments": [{"position": 0, "first_run_id": "r", "trace_id": 32 * "0"}]}
    assert segments_of(json.dumps(forged).encode()) == ()


def test_a_file_gives_each_events_trace_and_first_signing_node(tmp_path: Path) -> None:
    """Trace ids follow from first run ids, which a redacted file only claims; the first trusted checkpoint counts."""
    events = finished_log()
    one, other = public_key(NODE_KEY), public_key(OTHER_NODE_KEY)
    seals = [*sealed(events, (3, 9), thread="t"), *sealed(events, (5, 9), thread="t", key=OTHER_NODE_KEY)]
    (started,) = (event for event in events if event.type == "run_started")
    trace = hashlib.sha256(json.dumps(["trace/1", started.first_run_id], separators=(",", ":")).encode()).hexdigest()
    for redact in (False, True):
        file = write(tmp_path, export(events, thread="t", rows=rows_of(events), seals=seals, redact=redact))
        result = ours(file)
        assert result.ok
        assert [(each.position, each.trace_id) for each in result.segments] == ([] if redact else [(0, trace[:32])])
        last = min((seal.line(), seal.node) for seal in seals if seal.events == 9)[1]
        stretches = [(each.first, each.last, each.node) for each in result.stretches]
        assert stretches == (
            [(0, 2, one), (3, 8, other)] if last == other else [(0, 2, one), (3, 4, other), (5, 8, one)]
        )
        mine = asyncio.run(verify_file(file, anchors=Anchors((), {one: None})))
        assert [(each.first, each.last) for each in mine.stretches] == [(0, 8)]
        assert {each.claimed for each in result.stretches} == {True}
        assert {each.claimed for each in mine.stretches} == {False}


def test_checkpoints_of_unknown_nodes_are_shown_as_claims(tmp_path: Path) -> None:
    """Anybody who writes a file can make keys and checkpoints for it: each line and each stretch in JSON says so."""
    events, one = finished_log(), public_key(NODE_KEY)
    file = write(tmp_path, export(events, thread="t", rows=rows_of(events), seals=sealed(events, (9,), thread="t")))
    claimed, known = ours(file), asyncio.run(verify_file(file, anchors=Anchors((), {one: None})))
    said = f"events 0 to 8 first sealed by {one}"
    shown = file_screen(claimed).plain.splitlines()
    assert f"claimed, not checked: {said}" in [line.strip() for line in shown]
    assert shown[0].endswith("1 seal of nodes that you did not name")
    assert said in [line.strip() for line in file_screen(known).plain.splitlines()]
    assert [each["claimed"] for each in asdict(claimed)["stretches"]] == [True]
    program = [sys.executable, str(FOLDER / "verify_file.py"), str(file), SIGNER]
    for nodes, words in (
        ((), f"claimed, not checked, for it is none of the given ones: node {one}"),
        ((one,), "node "),
    ):
        ran = subprocess.run([*program, *nodes], capture_output=True, text=True, check=True)
        assert any(line.startswith(words) for line in ran.stdout.splitlines())


@pytest.mark.extended
def test_other_tools_verify_the_statement() -> None:
    """The envelope is DSSE, and the statement in-toto's: the log's head and the manifest are its subjects."""
    parts = dict(parts_of(sound_files()[0]))
    envelope = Envelope.from_dict(json.loads(parts[STATEMENT]))
    assert envelope.verify([_key(SIGNER)], 1)
    with pytest.raises(VerificationError):
        Envelope(envelope.payload + b" ", envelope.payload_type, envelope.signatures).verify([_key(SIGNER)], 1)
    statement, manifest = json.loads(envelope.payload), json.loads(parts[MANIFEST])
    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0] == {"name": "t", "digest": {"sha256": manifest["head"]}}


def test_unchecked_parts_are_named(tmp_path: Path) -> None:
    """An unsigned file, an unknown signer, an open run and a redacted file pass, and each names what is unchecked."""
    events = finished_log()
    rows = rows_of(events)

    def open_questions(file: bytes, **options: str) -> set[str]:
        result = ours(write(tmp_path, file), **{"signer": None, **options})
        assert result.ok, result.reason
        return {each.what for each in result.unchecked} - {"anchors"}  # no trusted keys are given

    signed = export(events, thread="t", rows=rows)
    assert open_questions(signed, signer=SIGNER) == {"history", "keys"}
    assert open_questions(signed) == {"signer", "history", "keys"}
    assert open_questions(export(events, thread="t", rows=rows, private=None)) == {"signature", "history", "keys"}
    before = next(event for event in events if event.type == "tool_call_started").position
    assert open_questions(export(events[:before], thread="t"), signer=SIGNER) == {"history", "keys", "end", "ledger"}
    redacted = export(events, thread="t", rows=rows, redact=True)
    assert open_questions(redacted, signer=SIGNER) == {"bodies", "history", "ledger", "artifacts"}


def test_a_file_has_the_matching_checkpoints_of_its_thread(tmp_path: Path) -> None:
    """They count, with their extent, if their node is trusted; a file without any keeps its earlier bytes."""
    events = finished_log()
    rows, count = rows_of(events), len(events)
    node, other = public_key(NODE_KEY), public_key(OTHER_NODE_KEY)
    seals = sealed(events, (4, count), thread="t") + sealed(events, (9,), thread="t", key=OTHER_NODE_KEY)
    unfit = [seal.model_copy(update={"head": "a" * 64}) for seal in seals[:1]]
    plain = export(events, thread="t", rows=rows)
    assert export(events, thread="t", rows=rows, seals=unfit) == plain
    file = export(events, thread="t", rows=rows, seals=seals + unfit)
    parts = dict(parts_of(file))
    assert parts[SEALS].splitlines() == sorted(seal.line() for seal in seals)
    assert json.loads(parts[NODES])["nodes"] == sorted([node, other])

    def said(content: bytes, *nodes: str) -> tuple[int, str]:
        anchors = Anchors((), dict.fromkeys(nodes)) if nodes else None
        result = ours(write(tmp_path, content), anchors=anchors)
        assert result.ok, result
        return result.seals, " | ".join(each.why for each in result.unchecked if each.what in ("anchors", "nodes"))

    assert said(plain, node) == (0, NONE_GIVEN.why)
    assert said(file, node, other) == (3, OWN_SEALS.why)
    assert "not among the given ones (1" in said(file, node)[1]
    trusting, words = said(file)
    assert (trusting, node in words, other in words) == (3, True, True)
    assert "no seal covers the events from 9 on" in said(file, other)[1]
    assert "no seal of this thread that counts" in said(file, SIGNER)[1]
    redacted = export(events, thread="t", redact=True, seals=seals)
    assert said(redacted, node)[0] == 2
    alone = independent().verify(write(tmp_path, file), SIGNER)
    assert alone[3] == {node: count, other: 9}


def test_a_redacted_file_has_no_bodies_and_keeps_the_digests(tmp_path: Path) -> None:
    """It has no task, result, reason or instructions, but the log's head, and who did what when."""
    events = finished_log()
    file = export(events, thread="t", rows=rows_of(events), redact=True)
    for words in (b"the task", b"secret of the tool", b"because", b"Work.", b"paid"):
        assert words not in file
    lines = [json.loads(line) for line in dict(parts_of(file))["memory/redacted.jsonl"].splitlines()]
    assert [line["digest"] for line in lines] == [event.digest for event in events]
    decided = next(line for line in lines if line["type"] == "decision_received")
    assert (decided["by"], decided["redacted"]) == ("alice", True)
    assert {line["type"] for line in lines if "redacted" not in line} <= WITHOUT_BODY
    assert ours(write(tmp_path, file)).head == events[-1].digest


@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_any_run_is_exported_and_verified(tmp_path: Path, seed: int) -> None:
    """Random runs with compactions, resets, approvals and new Temporal runs pass, and so do their redacted files."""
    events = play(seed).thread.log
    for redact in (False, True):
        result = ours(write(tmp_path, export(events, thread="t", redact=redact)))
        assert result.ok, result


IDS = {
    *("agent_loaded.spec_hash", "run_continued.run_id", "tool_call_started.key", "tool_call_started.request"),
    *("refusals_counted.refusals_digest", "wait_polled.seen", "subagent_started.agent", "subagent_started.thread"),
    *("subagent_started.run_id", "run_forked.thread", "run_forked.first_run_id", "run_forked.origin"),
    *("run_forked.point.thread", "run_forked.point.head", "run_started.thread", "run_started.run_id"),
    *("run_started.first_run_id", "run_started.agent", "run_started.schedule", "run_started.lineage.path"),
    *("run_started.lineage.key", "run_started.lineage.requesters"),
}
"""Fields that a redacted file keeps beside digests, times, types and actors: ids, and names of agents and people."""


def test_no_text_of_any_event_is_in_a_redacted_file() -> None:
    """Every text field of every type of event gets a marker of its own; only ids and names are kept."""
    marked: dict[bytes, str] = {}

    def texts(value: object, path: str) -> Iterator[tuple[dict[Any, Any] | list[Any], Any, str]]:
        """Yield the location of each text: the object or list, the key or index, and the path."""
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in list(items):
            below = f"{path}.{key}" if isinstance(value, dict) else path
            if isinstance(each, str) and isinstance(value, dict | list):
                yield value, key, below
            yield from texts(each, below)

    derived, kinds, parts = DerivedMembers(), Counter[str](), list[bytes]()
    events = [event for seed in (0, 24, 48) for event in play(seed).thread.log]
    assert isinstance(events[0], RunStarted)
    above = {
        "lineage": Lineage(path=("root",), number=1, key="k", deepest=3, requesters=("dana",)),
        "policies": (Policy(rules=(ask("pay", reason="money"),)),),
        "constraints": (InheritedConstraint(tool="pay", arguments="{}", reason="closed"),),
        "schedule": "nightly",
    }
    for event in (events[0].model_copy(update=above), *events):
        kinds[event.type] += 1
        if kinds[event.type] > 3:
            continue
        raw = json.loads(event_line(event))
        for holder, key, path in list(texts(raw, event.type)):
            kept, holder[key] = holder[key], f"marker-{len(marked)}-"
            try:
                decode_event(canonical(raw))
                marked[holder[key].encode()] = path
            except EventUnreadable:
                holder[key] = kept  # no text can be there
        line = canonical(raw)
        derived.take(raw["type"], line)
        parts.append(redact_line(line))
    parts += [content for _, content in derived.members(redacted=True)]
    row = {"key": "k", "epoch": 0, "tool": "pay", "outcome": "marker-of-the-outcome"}
    parts.append(canonical(redact_row(row)))
    found = b"\n".join(parts)
    assert b"marker-of-the-outcome" not in found
    left = {path for marker, path in marked.items() if marker in found}
    assert {path for path in left if path.split(".")[-1] not in ("by", "digest") or path.count(".") > 1} <= IDS
    assert {"tool_call_finished.content", "run_started.policies.rules.reason", "run_started.constraints.reason"} <= set(
        marked.values()
    )


# Trees.


@pytest.mark.parametrize("levels", [1, 3, 20])
def test_a_file_holds_the_logs_of_sub_agents(tmp_path: Path, levels: int) -> None:
    """Each log is under the numbers of the calls that started it and those above, which leave no ambiguity."""
    tree = family(levels=levels)
    for redact in (False, True):
        file = export_tree(tree, redact=redact)
        names = [name for name, _ in parts_of(file) if is_log(name)]
        kind = "redacted.jsonl" if redact else "log.jsonl"
        assert names == [f"memory/{f'children/{path}/' if path else ''}{kind}" for path in tree]
        path = write(tmp_path, file)
        result = ours(path)
        assert (result.ok, result.subagents, independent_judgement(path)) == (True, levels, None), result
        assert "subagents" not in {each.what for each in result.unchecked}


def test_a_file_without_sub_agents_says_so(tmp_path: Path) -> None:
    """A file that omits them names them as not checked; an unfinished tree says that later events may be missing."""
    tree = family()
    alone = ours(write(tmp_path, export_tree({"": tree[""]})))
    assert (alone.ok, alone.subagents) == (True, 0)
    assert [each.why for each in alone.unchecked if each.what == "subagents"] == [
        "the file does not have the logs of t.1: what these did, and whether they answered like this, is in their logs"
    ]
    half = ours(write(tmp_path, export_tree({path: tree[path] for path in ("", "1")})))
    assert "t.1.1" in next(each.why for each in half.unchecked if each.what == "subagents")
    running = ours(write(tmp_path, export_tree(family(end=False))))
    assert (running.ok, "end" in {each.what for each in running.unchecked}) == (True, True)


def test_a_thread_without_sub_agents_has_the_file_that_it_had() -> None:
    """The file equals its vector byte for byte, and no field or member mentions sub-agents."""
    parts = dict(parts_of(sound_files()[0]))
    assert set(json.loads(parts[MANIFEST])) == {
        *("events", "format", "head", "left_out", "members", "redacted", "thread")
    }
    assert not [name for name in parts if "children" in name]


# Any alteration is named.


def flip(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Flip a bit, anywhere in the file."""
    data = bytearray(packed(parts))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def flip_in_layout(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Flip a bit in the directory, or in a header."""
    data = bytearray(packed(parts))
    begin = struct.unpack("<I", data[-6:-2])[0]
    at = chance.choice([chance.randrange(begin, len(data)), chance.randrange(30)])
    data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def flip_in_member(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Flip a bit of a member, and correct its checksum."""
    at = chance.choice([index for index, (_, content) in enumerate(parts) if content])
    name, content = parts[at][0], bytearray(parts[at][1])
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return packed([*parts[:at], (name, bytes(content)), *parts[at + 1 :]])


def drop(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Drop a member; sometimes from the manifest as well."""
    at = chance.randrange(len(parts))
    rest = parts[:at] + parts[at + 1 :]
    return rebuilt(rest, None) if chance.random() < 0.3 and MANIFEST in dict(rest) else packed(rest)


def reorder(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Swap two members' positions."""
    one, two = chance.sample(range(len(parts)), 2)
    moved = list(parts)
    moved[one], moved[two] = moved[two], moved[one]
    return packed(moved)


def duplicate(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Add a member twice."""
    at = chance.randrange(len(parts))
    return packed([*parts[: at + 1], *parts[at:]])


def resign(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Change the log, recompute everything, and sign it with another key, or not at all."""
    changed = []
    for name, content in parts:
        if name.startswith("memory/") and name.endswith("log.jsonl"):
            lines = content.splitlines()
            at = chance.randrange(len(lines))
            lines[at] = canonical({**json.loads(lines[at]), "by": "mallory"})
            content = b"".join(line + b"\n" for line in redigested(lines, at))
        changed.append((name, content))
    return rebuilt(changed, chance.choice([MALLORY, None]))


def truncate(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Cut off the end, or append something."""
    data = packed(parts)
    if chance.random() < 0.2:
        return data + chance.randbytes(chance.randrange(1, 50))
    return data[: chance.randrange(len(data))]


def swap(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Take a member from another file: sometimes the statement, with its signature."""
    other = dict(chance.choice([each for each in others if each != parts]))
    names = [name for name, content in parts if name in other and other[name] != content]
    name = STATEMENT if chance.random() < 0.3 else chance.choice(names)
    return packed([(each, other[each] if each == name else content) for each, content in parts])


def cut_log(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Drop, repeat or move lines of the log, with a correct checksum; sometimes with a correct manifest."""
    at = chance.choice([index for index, (name, _) in enumerate(parts) if is_log(name)])
    lines = parts[at][1].splitlines(keepends=True)
    place = chance.randrange(len(lines))
    lines = chance.choice([lines[:place], lines[:place] + lines[place + 1 :], [*lines[: place + 1], *lines[place:]]])
    cut = [*parts[:at], (parts[at][0], b"".join(lines)), *parts[at + 1 :]]
    return rebuilt(cut, MALLORY) if chance.random() < 0.3 else packed(cut)


def unsign(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Alter the envelope: no signature, another key's name, a field that no signature covers, spaces."""
    envelope = json.loads(dict(parts)[STATEMENT])
    kind = chance.randrange(6)
    signature = envelope["signatures"][0]
    if kind == 0:
        envelope["signatures"] = []
    elif kind == 1:
        signature["keyid"] = "ed25519:" + base64.urlsafe_b64encode(chance.randbytes(32)).decode().rstrip("=")
    elif kind == 2:
        signature["note"] = "hidden"
    elif kind == 3:
        envelope["note"] = "hidden"
    elif kind == 4:
        signature["sig"] = base64.b64encode(chance.randbytes(64)).decode()
    else:
        envelope["payload"] = base64.b64encode(base64.b64decode(envelope["payload"]) + b" ").decode()
    text = json.dumps(envelope).encode() if chance.random() < 0.2 else canonical(envelope)
    return packed([(name, text if name == STATEMENT else content) for name, content in parts])


def forge_seals(parts: Parts, others: Sequence[Parts], chance: random.Random) -> bytes:
    """Alter or duplicate checkpoints, or add another node's, with a valid signature, as the exporter can."""
    index = next((index for index, (name, _) in enumerate(parts) if name == SEALS), None)
    if index is None:
        return flip(parts, others, chance)
    lines = parts[index][1].splitlines()
    kind = chance.randrange(6)
    at = chance.randrange(len(lines))
    seal = json.loads(lines[at])
    if kind == 0:
        lines = lines[::-1]
    elif kind == 1:
        field = chance.choice(["events", "head", "thread", "at", "namespace", "node", "signature", "holdfast"])
        other = {"events": seal["events"] + 1, "head": "a" * 64, "node": SIGNER, "at": "2027-01-01T00:00:00Z"}
        lines[at] = canonical({**seal, field: other.get(field, "A" * 86)})
    elif kind == 2:
        lines[at] = canonical({**seal, chance.choice(["gone", "note"]): "reset"})
    elif kind == 3:
        lines[at] = lines[at].replace(b":", b": ", 1)
    elif kind == 4:
        lines = [line for line in lines if b'"events":9' not in line]  # and its node is still named
    else:
        lines.append(lines[-1])
    content = b"".join(line + b"\n" for line in lines)
    return rebuilt([*parts[:index], (SEALS, content), *parts[index + 1 :]], ALICE)


MUTATE: list[Mutate] = [
    *(flip, flip_in_layout, flip_in_member, drop, reorder, duplicate, resign, truncate, swap, cut_log, unsign),
    forge_seals,
]


def check_mutants(folder: Path, count: int) -> None:
    """Assert that each of this many altered files is named, and named alike by both verifiers, with a fixed seed."""
    chance, files = random.Random(20_785), [parts_of(file) for file in sound_files()]
    places: set[Judgement] = set()
    for number in range(count):
        parts = chance.choice(files)
        mutant = MUTATE[number % len(MUTATE)](parts, files, chance)
        assert mutant != packed(parts), number
        path = write(folder, mutant)
        result = ours(path)
        assert not result.ok, (number, MUTATE[number % len(MUTATE)])
        assert result.reason
        assert independent_judgement(path) == (result.where, result.position), (
            number,
            MUTATE[number % len(MUTATE)],
            result,
        )
        places.add((result.where, result.position))
    assert len(places) > 8, "they are altered in many places"


def test_sound_files_pass_both_verifiers(tmp_path: Path) -> None:
    """The independent verifier accepts them; so does ours, except artifacts that no event refers to."""
    for file in sound_files():
        path = write(tmp_path, file)
        assert independent_judgement(path) is None
        result = ours(path)
        assert result.ok or (result.where.startswith(ARTIFACTS) and result.reason == "no event refers to it")


def test_an_altered_file_is_named_by_both_verifiers(tmp_path: Path) -> None:
    """For bytes flipped and members dropped, reordered, doubled, re-signed, truncated or swapped, both name the same
    location.
    """
    check_mutants(tmp_path, 168)


@pytest.mark.slow
def test_a_thousand_altered_files_are_named_by_both_verifiers(tmp_path: Path) -> None:
    """Each of a thousand alterations is named."""
    check_mutants(tmp_path, 1_000)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18, b"\0" * 22, b"{}" * 1000, b"PK" * 40],
)
def test_an_invalid_file_is_named_by_both_verifiers(tmp_path: Path, content: bytes) -> None:
    """An empty file, an empty zip file and garbage are each named."""
    path = write(tmp_path, content)
    assert independent_judgement(path) == (ours(path).where, ours(path).position) == ("zip", None)


HOSTILE = (
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"position":' + b"9" * 10_000 + b"}",
    b'{"position":1e999}',
    b'{"position":NaN}',
    b'"\\ud800"',
    b"\xff\xfe",
    b"\x1b[2J",
    b"null",
    b"[]",
    b'{"position":{}}',
)
"""Input that a parser may fail on: depth, endless numbers, NaN, lone surrogates, no text, no object."""


@pytest.mark.parametrize("name", [LOG, LEDGER, INTENT, MANIFEST, STATEMENT])
def test_hostile_json_is_named_and_not_shown(tmp_path: Path, name: str) -> None:
    """The input is in every member, with correct digests around it; the message is short and printable."""
    parts = parts_of(sound_files()[0])
    for content in HOSTILE:
        changed = [(each, content + b"\n" if each == name else data) for each, data in parts]
        file = packed(changed) if name in (MANIFEST, STATEMENT) else rebuilt(changed, ALICE)
        result = ours(path := write(tmp_path, file))
        assert (result.ok, result.where) == (False, name), content[:20]
        shown = file_screen(result).plain
        assert "\x1b" not in shown
        assert len(shown) < 2_000
        if name not in (LEDGER, INTENT):  # the other verifier does not check their meaning
            assert independent_judgement(path) == (result.where, result.position), content[:20]


def test_sizes_beyond_any_file_are_named_by_both_verifiers(tmp_path: Path) -> None:
    """The members claim gigabytes each: their offsets would not fit their fields."""
    entry = struct.Struct("<4s6H3I5H2I")
    lines = []
    for number in range(3):
        name = f"{ARTIFACTS}{number:064x}".encode()
        fields = (788, 20, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, len(name), 0, 0, 0, 0, 0o100600 << 16, 0)
        lines.append(entry.pack(b"PK\x01\x02", *fields) + name)
    body = b"".join(lines)
    path = write(tmp_path, body + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 3, 3, len(body), 0, 0))
    assert independent_judgement(path) == (ours(path).where, ours(path).position) == ("zip", None)


@pytest.mark.extended
def test_a_directory_of_the_most_members_is_read_in_one_pass() -> None:
    """Each of 60,000 members is visited once: a quadratic time would never end."""
    entries = [Entry(f"{ARTIFACTS}{number:064x}", 0, 0) for number in range(60_000)]
    assert len(read_directory(directory(entries))) == 60_000
    with pytest.raises(Unsound):
        read_directory(directory([*entries, entries[0]]))


def test_a_ledger_that_disagrees_is_named(tmp_path: Path) -> None:
    """The rows of a signed file lack, add or change an effect: the exporter's signature does not make it true."""
    events = finished_log()
    (row,) = rows_of(events)
    stranger = EffectRow("f" * 40, 0, "pay", None)
    for rows, words in (
        ([], "the ledger does not have the effect"),
        ([row, stranger], "no event starts it"),
        ([EffectRow(row.key, 0, "pay", '{"status":"failed","content":"paid"}')], "its result differs"),
        ([EffectRow(row.key, 0, "pay", None)], "it has not finished"),
        ([row, row], "out of order"),
    ):
        result = ours(write(tmp_path, export(events, thread="t", rows=rows)))
        assert (result.ok, result.where) == (False, LEDGER), words
        assert words in result.reason
    assert ours(write(tmp_path, export(events, thread="t", rows=[row]))).ok
    assert row_line(row) in export(events, thread="t", rows=[row])


def test_a_log_is_judged_alike_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are judged in batches, and events recorded together are judged together at any batch boundary."""
    for log in (finished_log(), play(7).thread.log):
        path = write(tmp_path, export(log, thread="t"))
        for size in (1, 2, 3, 7):
            monkeypatch.setattr(judging, "BATCH", size)
            result = ours(path)
            assert result.ok, (size, result.reason)


def test_a_killed_export_leaves_no_half_file_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    """A file gets its name only when it is complete. A file that another export still writes stays."""
    path = tmp_path / "run [1].holdfast"
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom holdfast.portable.writer import new_file\n"
        "with new_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half')\n    file.flush()\n    os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False)
    assert died.returncode == -9, died.stderr
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part")
    with new_file(path) as file:
        file.write(b"whole")
        assert not left.exists()
        with new_file(path) as second:
            assert len(list(tmp_path.iterdir())) == 2, "each export has a file of its own"
            second.write(b"another was faster")
        second_bytes = path.read_bytes()
        path.unlink()
    assert second_bytes == b"another was faster"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(path.name, b"whole")]


def test_a_branch_archived_by_a_reset_is_verified(tmp_path: Path) -> None:
    """The archived branch has an id of its own; its events and the ledger's rows are its thread's, some perhaps later
    ones.
    """
    events = finished_log()
    later = EffectRow("f" * 40, 0, "pay", None)
    rows = sorted([*rows_of(events), later], key=lambda row: row.key)
    result = ours(write(tmp_path, export(events, thread=aside_id("t", 1), rows=rows)))
    assert (result.ok, result.thread) == (True, "t~reset-1"), result.reason
    assert not ours(write(tmp_path, export(events, thread=aside_id("u", 1), rows=rows))).ok


def test_a_large_ledger_is_read_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every export can be verified: a ledger may be larger than a member that is held in memory."""
    events = finished_log()
    file = export(events, thread="t", rows=rows_of(events))
    largest = 100 + max(len(content) for name, content in parts_of(file) if name not in (LOG, LEDGER))
    monkeypatch.setattr(reader, "MAX_SMALL_BYTES", largest)
    monkeypatch.setattr(writer, "MAX_SMALL_BYTES", largest)
    (row,) = rows_of(events)
    large = EffectRow(row.key, 0, "pay", json.dumps({"status": "ok", "content": "paid"}) + " " * largest)
    result = ours(write(tmp_path, export(events, thread="t", rows=[large])))
    assert (result.ok, result.where) == (True, "")
    monkeypatch.setattr(writer, "MAX_SMALL_BYTES", largest // 2)
    with pytest.raises(ExportFailed, match="too large"):
        export(events, thread="t", rows=[row])


def test_the_independent_verifier_is_a_program(tmp_path: Path) -> None:
    """It exits with 0 for a sound file and 1 for any other, in plain ASCII and without a traceback."""

    def run(*arguments: str) -> tuple[int, str, str]:
        program = [sys.executable, str(FOLDER / "verify_file.py"), *arguments]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    path = str(write(tmp_path, sound_files()[0]))
    head = ours(Path(path)).head
    code, out, errors = run(path, SIGNER)
    assert (code, errors) == (0, "")
    assert out.startswith(f"head {head}, ")
    assert "who made the file" in run(path)[1]
    write(tmp_path, sound_files()[0][:-1])
    assert run(path) == (1, "'zip: it has no directory at its end'\n", "")
    assert run(path + ".none")[0] == 1


def test_the_independent_verifier_is_short() -> None:
    """A stranger reads it before trusting it: it has 240 lines at most, and uses the standard library and one crypto
    package.
    """
    text = (FOLDER / "verify_file.py").read_text()
    assert len(text.splitlines()) <= 240
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imported - sys.stdlib_module_names == {"cryptography", "verify"}


# Other formats.


def test_a_run_becomes_a_trajectory() -> None:
    """A reply and its calls are one step, with each result under the id of its call."""
    steps_file = trajectory(finished_log(), version="0")
    json.dumps(steps_file)
    assert (steps_file["schema_version"], steps_file["session_id"], steps_file["agent"]["name"]) == (
        "ATIF-v1.4",
        "t",
        "agent",
    )
    assert [step["step_id"] for step in steps_file["steps"]] == list(range(1, len(steps_file["steps"]) + 1))
    assert [step["source"] for step in steps_file["steps"]] == ["user", "system", "agent", "agent"]
    step = steps_file["steps"][2]
    asked = [call["tool_call_id"] for call in step["tool_calls"]]
    assert sorted(asked) == sorted(result["source_call_id"] for result in step["observation"]["results"])
    assert steps_file["final_metrics"]["total_prompt_tokens"] == 20


def test_a_run_becomes_openai_messages() -> None:
    """The system message, the task, the calls and their results are those of a Chat Completions request."""
    made = conversation(finished_log())
    assert [message["role"] for message in made["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "tool", "assistant")
    ]
    assert [call["id"] for call in made["messages"][2]["tool_calls"]] == ["c0", "c1", "c2"]
    assert {tool["function"]["name"] for tool in made["tools"]} == {"look", "pay", "wipe"}


@pytest.mark.parametrize("seed", range(1, 60, 15))
def test_any_run_has_other_formats(seed: int) -> None:
    """Random runs become JSON in both; each result in a trajectory belongs to a call of its step."""
    events = play(seed).thread.log
    json.dumps(conversation(events))
    for step in json.loads(json.dumps(trajectory(events, version="0")))["steps"]:
        known = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        assert {result["source_call_id"] for result in step.get("observation", {}).get("results", ())} <= known


def test_the_zip_file_has_no_free_bytes() -> None:
    """Every byte outside the members' content follows from the members."""
    file = sound_files()[0]
    with zipfile.ZipFile(io.BytesIO(file)) as read:
        assert {each.compress_type for each in read.infolist()} == {zipfile.ZIP_STORED}
        assert not read.comment
    assert packed(parts_of(file)) == file
