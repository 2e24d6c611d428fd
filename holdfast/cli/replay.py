"""The verb `replay`: replays recorded runs through today's workflow code, and prints a line for each run."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from rich.text import Text
from temporalio.converter import PayloadCodec
from temporalio.runtime import Runtime

from holdfast.audit.evidence.replay import RecordedRun, ReplayResult, recorded_in, replay
from holdfast.cli.exits import FAILED, OK
from holdfast.cli.output import Output
from holdfast.cli.text import count, visible
from holdfast.client.reading.histories import decrypt_events

PATIENCE = 1.0
"""Seconds before the first line of progress; the interval doubles after each line."""


async def replay_all(
    runs: AsyncIterator[RecordedRun],
    workflows: Sequence[type],
    *,
    output: Output,
    strict: bool,
    runtime: Runtime | None,
) -> int:
    """Replay `runs`, print the result of each, and return the exit code."""
    if runtime:
        # Otherwise the SDK logs a traceback of each failure, as it does with --debug, when `runtime` is None.
        logging.getLogger("temporalio").addHandler(logging.NullHandler())
    results: list[ReplayResult] = []
    async with _progress(output, results):
        async for run in runs:
            results.append(await replay(run, workflows, strict=strict, runtime=runtime))
            output.result(asdict(results[-1]), _line(results[-1]))
    diverged = sum(not each.ok for each in results)
    if not output.as_json:
        output.result(None, _verdict(len(results), diverged))
    return FAILED if diverged else OK


async def from_files(files: Sequence[Path], codec: PayloadCodec) -> AsyncIterator[RecordedRun]:
    """Yield the runs in `files`, decrypted; nothing is replayed unless all can be read."""
    runs = [recorded_in(file) for file in files]
    for run in runs:
        await decrypt_events(run.events, codec)
    for run in runs:
        yield run


def _line(replayed: ReplayResult) -> Text:
    line = Text.assemble(
        ("ok        ", "green") if replayed.ok else ("diverged  ", "bold red"),
        (visible(replayed.thread), "bold"),
        (f"  {visible(replayed.run_id)}", "dim"),
    )
    if not replayed.ok:
        where = f"event {replayed.event_id}: " if replayed.event_id else ""
        line.append(f"\n          {where}{visible(replayed.reason)}")
    return line


def _verdict(total: int, diverged: int) -> Text:
    if not total:
        return Text("There are no agent runs to replay.")
    if not diverged:
        return Text(f"{count(total, 'run')}, and today's code can resume {'it' if total == 1 else 'all of them'}.")
    return Text(
        f"{diverged:,} of {count(total, 'run')} {'diverges' if diverged == 1 else 'diverge'}. A run that is still "
        "open needs workers of the release that recorded it, or a workflow.patched() around what changed."
    )


@asynccontextmanager
async def _progress(output: Output, results: Sequence[ReplayResult]) -> AsyncIterator[None]:
    async def print_progress() -> None:
        pause = PATIENCE
        while True:
            await asyncio.sleep(pause)
            output.progress(Text(f"Replaying; {count(len(results), 'run')} done …", "dim"))
            pause *= 2

    printing = asyncio.create_task(print_progress())
    try:
        yield
    finally:
        printing.cancel()
