"""`python -m bench.peers.worker CONTENDER SETUP`: one contender's worker, in a process of its own.

Commands come as lines of JSON on standard input, answers go to standard output: "ready" when it listens, then one
for each run. It ends when its input does.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from typing import IO, Any

from bench.peers.contender import Contender, Setup
from bench.peers.contenders import CONTENDERS


async def serve(contender: Contender, setup: Setup, answers: IO[str]) -> None:
    """Carry out commands until there are no more."""
    commands: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, _read, commands, loop)
    _say(answers, {"ready": True})
    while (command := await commands.get()) is not None:
        if "stop" in command:
            continue  # what it was to stop has ended by itself
        making = asyncio.create_task(_make(contender, setup, command))
        stop = asyncio.create_task(commands.get())
        await asyncio.wait([making, stop], return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            making.cancel()
        _say(answers, await making)
        if not stop.cancel() and stop.result() is None:
            return


async def _make(contender: Contender, setup: Setup, command: dict[str, Any]) -> dict[str, Any]:
    """Make one run, or see one through to its end."""
    name = command["name"]
    gc.collect()  # nobody pays for what an earlier run left behind
    before = await contender.stored(name)
    cpu, wall = time.process_time(), time.perf_counter()
    error = ""
    try:
        async with asyncio.timeout(setup.limit):
            if "steps" in command:
                await contender.run(name, command["steps"])
            else:
                await contender.resume(name)
    except TimeoutError:
        error = f"time limit: {setup.limit:.0f} s"
    except asyncio.CancelledError:
        error = "no model call for too long"
    except Exception as raised:
        error = _chain(raised)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if error:
        cause = await _quietly(contender, name)
        error = f"{error}; {cause}" if cause else error
    stored = await contender.stored(name) - before
    return {"seconds": wall, "cpu_seconds": cpu, "stored": stored, "error": error}


async def _quietly(contender: Contender, name: str) -> str:
    try:
        async with asyncio.timeout(20):
            return await contender.autopsy(name)
    except Exception as raised:
        return f"no autopsy: {raised}"


def _chain(error: BaseException | None) -> str:
    """An error and its causes, outermost first."""
    words = []
    while error is not None:
        words.append(f"{type(error).__name__}: {error}"[:300])
        error = error.__cause__
    return " <- ".join(words)


def _read(commands: "asyncio.Queue[dict[str, Any] | None]", loop: asyncio.AbstractEventLoop) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
    loop.call_soon_threadsafe(commands.put_nowait, None)


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


async def _main(name: str, setup: Setup, answers: IO[str]) -> None:
    module = importlib.import_module(CONTENDERS[name].module(name))
    async with module.open_contender(setup) as contender:
        await serve(contender, setup, answers)
        os._exit(0)  # temporalio can crash the interpreter at exit; nothing is left to do


if __name__ == "__main__":
    # Libraries may print: their words go to the log, and only ours to the bench.
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(_main(sys.argv[1], Setup.load(sys.argv[2]), own))
