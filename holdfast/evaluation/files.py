"""Reads recorded runs: portable files, each verified first, and the datasets that list them.

Only verified content is rerun: the head of the chain over the lines that are read must equal the verified head, so a
file that is replaced in between is rejected.
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
from holdfast.evaluation.compare.datasets import SUFFIX, Dataset
from holdfast.evaluation.compare.reading import read_recording
from holdfast.evaluation.compare.recording import Recording
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import LOG
from holdfast.portable.reader import open_portable_file
from holdfast.portable.verify import verify_file

SET = "eval.toml"
"""The file with the expectations, in a folder of recorded runs."""
MAX_EVENTS = 100_000
"""The most events of a run that can be rerun."""
MAX_LOG_BYTES = 64_000_000
"""The most bytes of its log."""
MAX_EVENT_BYTES = 1_800_000
"""The most bytes of one of its events: Temporal rejects payloads of 2 MB."""
MAX_SET_BYTES = 4_000_000


async def read_run(path: Path) -> Recording:
    """Verify a portable file like `holdfast verify`, and return its run.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        NotPlayable: The file does not verify, has no bodies, or cannot be rerun.
    """
    await asyncio.to_thread(_check_size, path)
    verification = await verify_file(path)
    if not verification.ok:
        location = (
            f"{verification.where}, event {verification.position}"
            if verification.position is not None
            else verification.where
        )
        raise NotPlayable(f"{path} does not hold: {location}: {verification.reason}. {verification.advice}".strip())
    if verification.redacted:
        raise NotPlayable(f"{path} is redacted: it has no texts for a rerun; export the thread without --redact")
    try:
        return await asyncio.to_thread(lambda: read_recording(_events(path, head=verification.head)))
    except NotPlayable as error:
        raise NotPlayable(f"{path} cannot be rerun: {error}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # fields that no release has written
        raise NotPlayable(f"{path} cannot be rerun: its log is forged ({type(error).__name__}: {error})") from None


def _check_size(path: Path) -> None:
    """Reject a log that is too long to hold in memory, before it is verified."""
    with suppress(Unsound), open_portable_file(path) as file:  # verification finds and reports a fault
        events, size = file.manifest.events, sum(each.size for each in file.manifest.members if each.name == LOG)
        if events > MAX_EVENTS or size > MAX_LOG_BYTES:
            raise NotPlayable(
                f"{path} has {events:,} events with {size:,} bytes; at most {MAX_EVENTS:,} with {MAX_LOG_BYTES:,} "
                "are rerun"
            )


def _events(path: Path, *, head: str) -> list[AgentEvent]:
    """Return the events of a file whose chain was verified up to `head`."""
    events, digest = list[AgentEvent](), GENESIS
    try:
        with open_portable_file(path) as file:
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


def read_dataset(path: Path) -> tuple[Path, Dataset]:
    """Read a dataset of recorded runs; return its folder and the dataset.

    Args:
        path: A TOML file; a folder of portable files, whose `eval.toml`, if any, has the expectations; or a single
            portable file.

    Raises:
        FileUnreadable: There is no such file or folder, or it cannot be read.
        SetInvalid: The dataset has errors, or no run.
    """
    try:
        if path.is_dir():
            return path, _dataset_in(path)
        if path.suffix == SUFFIX:
            return path.parent, _dataset_of(path, {"run": [{"file": path.name}]})
        return path.parent, _read(path)
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None


def _dataset_in(path: Path) -> Dataset:
    listed = _read(path / SET).run if (path / SET).exists() else ()
    names = {each.file for each in listed}
    # A project's state folder is called .holdfast, too.
    files = (each.name for each in path.glob(f"[!.]*{SUFFIX}") if each.is_file())
    others = [{"file": name} for name in sorted(files) if name not in names]
    if not listed and not others:
        raise SetInvalid(f"{path} has no recorded run: holdfast export THREAD -o {path}/NAME{SUFFIX} makes one")
    return _dataset_of(path, {"run": [*listed, *others]})


def _read(path: Path) -> Dataset:
    with path.open("rb") as file:
        text = file.read(MAX_SET_BYTES + 1)
    if len(text) > MAX_SET_BYTES:
        raise SetInvalid(f"{path} has more than {MAX_SET_BYTES:,} bytes")
    try:
        return _dataset_of(path, tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        raise SetInvalid(f"{path} is not valid TOML: {error}") from None


def _dataset_of(path: Path, fields: Mapping[str, Any]) -> Dataset:
    try:
        return Dataset.model_validate(fields)
    except ValidationError as error:
        lines = [f"{_field_path(each['loc'])}: {each['msg']}" for each in error.errors(include_url=False)[:10]]
        raise SetInvalid("\n".join(f"{path}: {line}" for line in lines)) from None


def _field_path(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in loc).removeprefix(".") or "the set"
