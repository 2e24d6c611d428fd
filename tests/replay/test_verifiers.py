"""I9: a stranger can check a log: `docs/verify/verify.py` and `docs/verify/verify.mjs` judge each as our code does."""

import base64
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import rfc8785
from temporalio.client import WorkflowHistory

from holdfast.core.base.canonical import GENESIS, canonical, portable
from holdfast.core.log.event_log import digest_after, event_line, first_altered
from holdfast.core.log.loop_events import StoredEvent
from holdfast.core.log.upcasters import decode_stored
from holdfast.core.temporal.history_reader import read_events
from holdfast.core.temporal.loop_history import lines_in
from tests.replay.record import HISTORIES
from tests.replay.scenarios import LAUNCHERS, LOOPS

FOLDER = Path(__file__).parents[2] / "docs" / "verify"
MUTATIONS = 1_000
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node here to run docs/verify/verify.mjs with")

BATCH = """
import { readFileSync } from "node:fs";
import { verify } from %s;
const logs = JSON.parse(readFileSync(0)).map((log) => Buffer.from(log, "base64"));
console.log(JSON.stringify(logs.map((log) => verify(log))));
"""
"""Runs the verifier over many logs in one process."""

Line = bytes
Log = list[Line]
Judgement = tuple[int, str]
"""The position of the first invalid event, or -1; and the head of a valid log."""


@cache
def recorded_logs(release: str = "*") -> dict[str, list[StoredEvent]]:
    """Return the events of every recorded thread of a release, or of all, over all its Temporal runs."""
    logs: dict[str, list[StoredEvent]] = {}
    for file in sorted(HISTORIES.glob(f"{release}/*.json")):
        scenario = file.stem.split(".")[0]
        name = f"{file.parent.name}/{scenario}"
        if scenario in LAUNCHERS:  # these record no events themselves
            continue
        history = WorkflowHistory.from_json(file.stem, file.read_text()).events
        own: Sequence[StoredEvent] = (
            [decode_stored(line) for line in lines_in(history).values()] if scenario in LOOPS else read_events(history)
        )
        if own and own[0].position > len(logs.get(name, [])):
            continue  # a fork's own events: those before it are in the original's history
        if own:  # a loop of 0.1.0 has no log
            logs[name] = logs.get(name, [])[: own[0].position] + list(own)
    return logs


def ours(log: bytes) -> Judgement:
    """Judge a log as Holdfast does: each line is canonical, in its position, and continues the chain."""
    head = GENESIS
    lines = log.removesuffix(b"\n").split(b"\n")
    for position, line in enumerate(lines):
        try:
            stored = json.loads(line)
            sound = canonical(stored) == line and type(stored["position"]) is int and stored["position"] == position
            head = digest_after(head, stored)
            sound = sound and stored["digest"] == head
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            sound = False
        if not sound:
            return position, ""
    return -1, head


def parse_judgement(found: str) -> Judgement:
    """Parse a verifier's output."""
    if fault := re.match(r"event (\d+): ", found):
        return int(fault[1]), ""
    sound = re.fullmatch(r"head ([0-9a-f]{64}), \d+ events", found)
    assert sound, found
    return -1, sound[1]


def import_verifier() -> ModuleType:
    """Import the Python verifier, which nothing else imports."""
    spec = importlib.util.spec_from_file_location("verify", FOLDER / "verify.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_python(logs: Sequence[bytes]) -> list[Judgement]:
    """Judge logs with the Python verifier."""
    module = import_verifier()
    return [parse_judgement(module.verify(log, "")) for log in logs]


def in_node(logs: Sequence[bytes]) -> list[Judgement]:
    """Judge logs with the JavaScript verifier."""
    assert NODE
    script = BATCH % json.dumps((FOLDER / "verify.mjs").as_uri())
    text = json.dumps([base64.b64encode(log).decode() for log in logs])
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", script], input=text, capture_output=True, text=True, check=True
    )
    return [parse_judgement(judgement) for judgement in json.loads(done.stdout)]


def redigested(lines: Log, start: int = 0) -> Log:
    """Recompute the chain from a line on, as a forger would."""
    head = GENESIS if start == 0 else str(json.loads(lines[start - 1])["digest"])
    kept = lines[:start]
    for line in lines[start:]:
        event = json.loads(line)
        head = digest_after(head, event)
        kept.append(canonical(event | {"digest": head}))
    return kept


def flip(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Flip a bit."""
    data = bytearray(b"\n".join(log))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data).split(b"\n")


def drop(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Drop a line."""
    at = chance.randrange(len(log))
    return log[:at] + log[at + 1 :]


def reorder(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Shuffle some lines."""
    start = chance.randrange(len(log))
    part = log[start : start + 3]
    chance.shuffle(part)
    return [*log[:start], *part, *log[start + 3 :]]


def duplicate(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Repeat a line."""
    at = chance.randrange(len(log))
    return [*log[: at + 1], *log[at:]]


def swap(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Take a line from another thread."""
    at, other = chance.randrange(len(log)), chance.choice(others)
    return [*log[:at], other[min(at, len(other) - 1)], *log[at + 1 :]]


def truncate(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Cut the tail off, or the last line in the middle."""
    data = b"\n".join(log)
    return data[: chance.randrange(len(data))].split(b"\n")


def renumber(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Write a number in another form: 1.0, 1e0, 01, -0, 2^53 + 1."""
    at = chance.randrange(len(log))
    spelled = chance.choice(
        [rb"\1.0", rb"\1e0", rb"0\1", rb"-\1", rb"\g<1>00000000000000003", rb"\1.5", b"1e400", b"NaN"]
    )
    return [*log[:at], re.sub(rb"(?<=[:,\[])(\d+)(?=[,}\]])", spelled, log[at], count=1), *log[at + 1 :]]


def reencode(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Write an event's JSON in another form: escapes, spaces, other order, a byte order mark, duplicate keys."""
    at = chance.randrange(len(log))
    event, line = json.loads(log[at]), log[at]
    spellings: list[bytes] = [
        json.dumps(event, separators=(",", ":"), sort_keys=True).replace("a", "\\u0061", 1).encode(),
        json.dumps(event).encode(),
        json.dumps(dict(reversed(event.items())), separators=(",", ":"), ensure_ascii=False).encode(),
        b"\xef\xbb\xbf" + line,
        line + b"\r",
        line[:-1] + b',"type":"x"}',
        line.decode().encode("utf-16"),
        line.decode().encode("latin-1", "replace"),
        canonical([event]),
        b"",
    ]
    return [*log[:at], chance.choice(spellings), *log[at + 1 :]]


def forge(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Alter an event, and recompute the digests from there on, or from the next one."""
    at = chance.randrange(len(log))
    odd = [600.0, 1e-7, 1e20, 1e21, 5e-324, -0.0, 2**53, "\U0001f600\ue000", {"\U0001f600": 1, "\ue000": 2, "": [True]}]
    event = json.loads(log[at]) | {"type": "altered", "odd": chance.choice(odd)}
    altered = [*log[:at], canonical(portable(event)), *log[at + 1 :]]
    return redigested(altered, at + chance.randrange(2))


def forge_badly(log: Log, others: Sequence[Log], chance: random.Random) -> Log:
    """Compute digests over values without canonical JSON, or over an invalid position."""
    at = chance.randrange(len(log))
    position = chance.choice([True, None, str(at), at + 0.5, [at], -1])
    altered = [*log[:at], canonical(json.loads(log[at]) | {"position": position}), *log[at + 1 :]]
    if chance.random() < 0.5:
        return redigested(altered, at)
    odd = chance.choice(
        [b'"\\ud800"', b"1e999", b"9007199254740993", b"[[" * 100 + b"1" + b"]]" * 100, b'"\xed\xa0\x80"']
    )
    return [*log[:at], log[at].replace(b'{"', b'{"A":' + odd + b',"', 1), *log[at + 1 :]]


MUTATE: list[Callable[[Log, Sequence[Log], random.Random], Log]] = [
    *(flip, drop, reorder, duplicate, swap, truncate, renumber, reencode, forge, forge_badly)
]


@cache
def mutants() -> list[bytes]:
    """Return mutated logs, the same on every run."""
    logs = [[event_line(event) for event in events] for events in recorded_logs().values()]
    chance = random.Random(8785)
    mutated = []
    for number in range(MUTATIONS):
        log = chance.choice(logs)
        for _ in range(chance.choice([1, 1, 1, 2])):
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # the first mutation left no JSON to mutate
                log = MUTATE[number % len(MUTATE)](log, logs, chance)
        mutated.append(b"\n".join(log) + b"\n" * chance.randrange(3 if number % 7 == 0 else 2))
    return mutated


def garbage() -> list[bytes]:
    """Return input that is no log at all."""
    bits = random.Random(1)
    lines = [
        b"",
        b"\n",
        b"\n\n",
        b"{}",
        b"[]",
        b"null",
        b"0",
        b'"x"',
        b"NaN",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"position":0}',
    ]
    return [*lines, *(bits.randbytes(bits.randrange(200)) for _ in range(50)), b'{"__proto__":{"position":0}}']


@pytest.mark.extended
def test_recorded_logs_are_sound_in_python() -> None:
    """The Python verifier accepts every recorded log, with the head that we compute."""
    logs = recorded_logs()
    assert all(first_altered(events) is None for events in logs.values())
    actual = in_python([b"\n".join(map(event_line, events)) for events in logs.values()])
    assert actual == [(-1, events[-1].digest) for events in logs.values()]


@needs_node
def test_recorded_logs_are_sound_in_node() -> None:
    """The JavaScript verifier accepts every recorded log, with the head that we compute."""
    logs = recorded_logs()
    actual = in_node([b"\n".join(map(event_line, events)) + b"\n" for events in logs.values()])
    assert actual == [(-1, events[-1].digest) for events in logs.values()]


@pytest.mark.extended
def test_altered_logs_are_judged_alike_in_python() -> None:
    """The Python verifier names the same first event as we do, in a thousand altered logs and in garbage."""
    logs = [*mutants(), *garbage()]
    expected = [ours(log) for log in logs]
    assert in_python(logs) == expected
    sound = sum(position < 0 for position, _ in expected)
    assert sound < len(logs) / 4, "only a cut tail, a change back, and a chain that was computed anew go unnoticed"
    assert len({position for position, _ in expected}) > 20


@needs_node
def test_altered_logs_are_judged_alike_in_node() -> None:
    """The JavaScript verifier names the same first event as we do, in a thousand altered logs and in garbage."""
    logs = [*mutants(), *garbage()]
    assert in_node(logs) == [ours(log) for log in logs]


def test_the_python_verifier_writes_numbers_as_ecmascript_does() -> None:
    """Its own RFC 8785 agrees with the library's for floats of every size."""
    module, chance = import_verifier(), random.Random(2)
    numbers = [sign * chance.random() * 10 ** chance.randrange(-330, 309) for sign in (1, -1) for _ in range(20_000)]
    numbers += [float(chance.randrange(10 ** chance.randrange(1, 26))) for _ in range(20_000)]
    for number in [*numbers, 600.0, 1e-05, 1e-06, 1e-07, 1e16, 5e-324, -0.0, 1e20, 1e21, 1.7976931348623157e308]:
        assert module.number(number) == rfc8785.dumps(number).decode()


VERIFIERS = [
    pytest.param([sys.executable, str(FOLDER / "verify.py")], id="python"),
    pytest.param([str(NODE), str(FOLDER / "verify.mjs")], id="node", marks=needs_node),
]


@pytest.mark.extended
@pytest.mark.parametrize("command", VERIFIERS)
def test_a_verifier_ends_with_a_code_and_without_a_traceback(command: list[str], tmp_path: Path) -> None:
    """It exits with 0 for a valid log, from a file or from stdin; with 1 for an altered one, for garbage, and for no
    file.
    """

    def run(*arguments: str, given: bytes = b"") -> tuple[int, str]:
        done = subprocess.run([*command, *arguments], input=given, capture_output=True, check=False)
        assert done.stderr == b""
        return done.returncode, done.stdout.decode()

    events = recorded_logs("0.1.0")["0.1.0/plain"]
    log = b"\n".join(map(event_line, events)) + b"\n"
    (tmp_path / "log").write_bytes(log)
    head = events[-1].digest
    sound = (0, f"head {head}, {len(events)} events\n")
    assert run(str(tmp_path / "log")) == run(str(tmp_path / "log"), head) == run(given=log) == sound
    cut = tmp_path / "cut"
    cut.write_bytes(b"\n".join(log.splitlines()[:-1]))
    assert run(str(cut)) == (0, f"head {events[-2].digest}, {len(events) - 1} events\n"), "a cut tail is not seen"
    assert run(str(cut), head) == (1, f"event {len(events) - 1}: the head is another\n"), "except with the head"
    assert run(given=log.replace(b"run_started", b"run_stopped"))[0] == 1
    assert run(given=b"\xff garbage")[0] == 1
    assert run(str(tmp_path / "missing"))[0] == 1


def test_the_verifiers_are_short() -> None:
    """A stranger reads them before trusting them: each has under 60 lines, and uses only the standard library."""
    for name in ("verify.py", "verify.mjs"):
        assert len((FOLDER / name).read_text().splitlines()) < 60
    assert (
        set(re.findall(r"^import (\w+)", (FOLDER / "verify.py").read_text(), re.MULTILINE)) <= sys.stdlib_module_names
    )
    sources = re.findall(r'from "(\S+)"', (FOLDER / "verify.mjs").read_text())
    assert all(source.startswith("node:") for source in sources)
