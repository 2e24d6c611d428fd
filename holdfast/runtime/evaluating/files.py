"""Reads recorded runs: portable files, each verified first, and the sets that name them.

What is played is what was verified: the head of the chain over the lines that are read is compared with the head that
was verified, so a file that is replaced meanwhile is refused.
"""

import json
import tomllib
from pathlib import Path

from pydantic import ValidationError

from holdfast.base.digests import GENESIS
from holdfast.errors import EventUnreadable, FileUnreadable, NotPlayable, SetInvalid
from holdfast.evaluation.reading import read_recording
from holdfast.evaluation.recording import Recording
from holdfast.evaluation.sets import MAX_RUNS, SUFFIX, EvalSet, RunOf
from holdfast.log.events import AgentEvent
from holdfast.log.upcasters import decode_event
from holdfast.portable.layout import Unsound
from holdfast.portable.members import LOG
from holdfast.portable.redaction import body_digest
from holdfast.runtime.portable.reader import opened
from holdfast.runtime.portable.verify import verify_file

SET = "eval.toml"
"""The file in a folder of recorded runs that says what is expected of them."""
MAX_EVENTS = 100_000
"""The most events of a run that is played."""
MAX_SET_BYTES = 4_000_000


async def read_run(path: Path) -> Recording:
    """Verify a portable file as `holdfast verify` does, and return the run that it holds.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        NotPlayable: Something of it does not hold, it has no bodies, or it cannot be played.
    """
    found = await verify_file(path)
    if not found.ok:
        place = f"{found.where}, event {found.position}" if found.position is not None else found.where
        raise NotPlayable(f"{path} does not hold: {place}: {found.reason}. {found.advice}".strip())
    if found.redacted:
        raise NotPlayable(f"{path} is redacted: it has no words to play; export the thread without --redact")
    if found.events > MAX_EVENTS:
        raise NotPlayable(f"{path} has {found.events:,} events; at most {MAX_EVENTS:,} are played")
    try:
        return read_recording(_events(path, head=found.head))
    except NotPlayable as error:
        raise NotPlayable(f"{path} cannot be played: {error}") from None


def _events(path: Path, *, head: str) -> list[AgentEvent]:
    """Return the events of a file whose chain was verified up to `head`."""
    events, digest = list[AgentEvent](), GENESIS
    try:
        with opened(path) as file:
            for line in file.lines(LOG):
                digest = body_digest(digest, json.loads(line), line)
                events.append(decode_event(line))
                if len(events) > MAX_EVENTS:
                    break
    except (Unsound, EventUnreadable, ValueError, RecursionError) as error:
        raise NotPlayable(f"it has changed since it was verified ({error})") from None
    if digest != head:
        raise NotPlayable("it has changed since it was verified")
    return events


def read_set(path: Path) -> tuple[Path, EvalSet]:
    """Return the folder of a set of recorded runs, and the set.

    Args:
        path: A TOML file; a folder of portable files, with what is expected of them in its `eval.toml`, if it has one;
            or a single portable file.

    Raises:
        FileUnreadable: There is no such file or folder, or it cannot be read.
        SetInvalid: The set has errors, or no run.
    """
    if path.is_dir():
        given = _read(path / SET).run if (path / SET).exists() else ()
        named = {each.file for each in given}
        others = sorted(each.name for each in path.glob(f"*{SUFFIX}") if each.name not in named)
        runs = (*given, *(RunOf(file=name) for name in others))
        if not runs:
            raise SetInvalid(f"{path} has no recorded run: holdfast export THREAD -o {path}/NAME{SUFFIX} makes one")
        if len(runs) > MAX_RUNS:
            raise SetInvalid(f"{path} has {len(runs):,} recorded runs; a set has at most {MAX_RUNS:,}")
        return path, EvalSet(run=runs)
    if path.suffix == SUFFIX:
        return path.parent, EvalSet(run=(RunOf(file=path.name),))
    return path.parent, _read(path)


def _read(path: Path) -> EvalSet:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SET_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > MAX_SET_BYTES:
        raise SetInvalid(f"{path} has more than {MAX_SET_BYTES:,} bytes")
    try:
        return EvalSet.model_validate(tomllib.loads(text.decode()))
    except ValidationError as error:
        lines = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors(include_url=False)[:10]]
        raise SetInvalid("\n".join(f"{path}: {line}" for line in lines)) from None
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        raise SetInvalid(f"{path} is not valid TOML: {error}") from None


def _place(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in loc).removeprefix(".") or "the set"
