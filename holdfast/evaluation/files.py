"""Reads recorded runs: portable files, each verified first, and the sets that name them.

What is played is what was verified: the head of the chain over the lines that are read is compared with the head that
was verified, so a file that is replaced meanwhile is refused.
"""

import asyncio
import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.core.base.canonical import GENESIS
from holdfast.core.log.event_log import digest_of_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_event
from holdfast.errors import EventUnreadable, FileUnreadable, NotPlayable, SetInvalid
from holdfast.evaluation.compare.datasets import SUFFIX, EvalSet
from holdfast.evaluation.compare.reading import read_recording
from holdfast.evaluation.compare.recording import Recording
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import LOG
from holdfast.portable.reader import opened
from holdfast.portable.verify import verify_file

SET = "eval.toml"
"""The file in a folder of recorded runs that says what is expected of them."""
MAX_EVENTS = 100_000
"""The most events of a run that is played."""
MAX_LOG_BYTES = 64_000_000
"""The most bytes of its log."""
MAX_EVENT_BYTES = 1_800_000
"""The most bytes of one of its events: Temporal takes no payload of 2 MB."""
MAX_SET_BYTES = 4_000_000


async def read_run(path: Path) -> Recording:
    """Verify a portable file as `holdfast verify` does, and return the run that it holds.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        NotPlayable: Something of it does not hold, it has no bodies, or it cannot be played.
    """
    await asyncio.to_thread(_check_size, path)
    found = await verify_file(path)
    if not found.ok:
        place = f"{found.where}, event {found.position}" if found.position is not None else found.where
        raise NotPlayable(f"{path} does not hold: {place}: {found.reason}. {found.advice}".strip())
    if found.redacted:
        raise NotPlayable(f"{path} is redacted: it has no words to play; export the thread without --redact")
    try:
        return await asyncio.to_thread(lambda: read_recording(_events(path, head=found.head)))
    except NotPlayable as error:
        raise NotPlayable(f"{path} cannot be played: {error}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # fields as no release has them
        raise NotPlayable(f"{path} cannot be played: its log is forged ({type(error).__name__}: {error})") from None


def _check_size(path: Path) -> None:
    """Refuse a log that is too long to be held in memory, before it is verified."""
    with suppress(Unsound), opened(path) as file:  # what does not hold is found, and named, when it is verified
        events, size = file.manifest.events, sum(each.size for each in file.manifest.members if each.name == LOG)
        if events > MAX_EVENTS or size > MAX_LOG_BYTES:
            raise NotPlayable(
                f"{path} has {events:,} events with {size:,} bytes; at most {MAX_EVENTS:,} with {MAX_LOG_BYTES:,} "
                "are played"
            )


def _events(path: Path, *, head: str) -> list[AgentEvent]:
    """Return the events of a file whose chain was verified up to `head`."""
    events, digest = list[AgentEvent](), GENESIS
    try:
        with opened(path) as file:
            for line in file.lines(LOG):
                if len(line) > MAX_EVENT_BYTES:
                    raise NotPlayable(f"event {len(events)} has {len(line):,} bytes; the limit is {MAX_EVENT_BYTES:,}")
                if len(events) == MAX_EVENTS:
                    break
                digest = digest_of_line(digest, json.loads(line), line)
                events.append(decode_event(line))
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
    try:
        if path.is_dir():
            return path, _of_folder(path)
        if path.suffix == SUFFIX:
            return path.parent, _set_of(path, {"run": [{"file": path.name}]})
        return path.parent, _read(path)
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None


def _of_folder(path: Path) -> EvalSet:
    given = _read(path / SET).run if (path / SET).exists() else ()
    named = {each.file for each in given}
    # A project's state folder is called .holdfast, too.
    found = (each.name for each in path.glob(f"[!.]*{SUFFIX}") if each.is_file())
    others = [{"file": name} for name in sorted(found) if name not in named]
    if not given and not others:
        raise SetInvalid(f"{path} has no recorded run: holdfast export THREAD -o {path}/NAME{SUFFIX} makes one")
    return _set_of(path, {"run": [*given, *others]})


def _read(path: Path) -> EvalSet:
    with path.open("rb") as file:
        text = file.read(MAX_SET_BYTES + 1)
    if len(text) > MAX_SET_BYTES:
        raise SetInvalid(f"{path} has more than {MAX_SET_BYTES:,} bytes")
    try:
        return _set_of(path, tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        raise SetInvalid(f"{path} is not valid TOML: {error}") from None


def _set_of(path: Path, given: Mapping[str, Any]) -> EvalSet:
    try:
        return EvalSet.model_validate(given)
    except ValidationError as error:
        lines = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors(include_url=False)[:10]]
        raise SetInvalid("\n".join(f"{path}: {line}" for line in lines)) from None


def _place(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in loc).removeprefix(".") or "the set"
