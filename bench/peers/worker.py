"""`python -m bench.peers.worker CONTENDER SETUP`: one contender's worker, in a separate process.

It reads commands as lines of JSON from standard input and writes answers to standard output: "ready" once it polls,
then one for each run. It ends when its input is closed.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from typing import IO, Any

import uvloop

from bench.peers.contender import Contender, Setup
from bench.peers.contenders import module_of


async def serve(contender: Contender, setup: Setup, answers: IO[str]) -> None:
    """Execute commands until there are no more."""
    commands: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, _read, commands, loop)
    _send(answers, {"ready": True})
    while (command := await commands.get()) is not None:
        if "stop" in command:
            continue  # the run has already ended
        running = asyncio.create_task(_execute(contender, setup, command))
        stop = asyncio.create_task(commands.get())
        await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
        _send(answers, await running)
        if not stop.cancel() and stop.result() is None:
            return


async def _execute(contender: Contender, setup: Setup, command: dict[str, Any]) -> dict[str, Any]:
    """Execute one run, or wait for the end of a resumed one."""
    name = command["name"]
    gc.collect()  # so that garbage of an earlier run is not measured
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
        cause = await _diagnose(contender, name)
        error = f"{error}; {cause}" if cause else error
    stored = await contender.stored(name) - before
    return {"seconds": wall, "cpu_seconds": cpu, "stored": stored, "error": error}


async def _diagnose(contender: Contender, name: str) -> str:
    try:
        async with asyncio.timeout(20):
            return await contender.diagnose(name)
    except Exception as raised:
        return f"no diagnosis: {raised}"


def _chain(error: BaseException | None) -> str:
    """Format an error and its causes, outermost first."""
    parts = []
    while error is not None:
        parts.append(f"{type(error).__name__}: {error}"[:300])
        error = error.__cause__
    return " <- ".join(parts)


def _read(commands: "asyncio.Queue[dict[str, Any] | None]", loop: asyncio.AbstractEventLoop) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
    loop.call_soon_threadsafe(commands.put_nowait, None)


def _send(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


async def _main(name: str, setup: Setup, answers: IO[str]) -> None:
    module = importlib.import_module(module_of(name))
    async with module.open_contender(setup) as contender:
        await serve(contender, setup, answers)
        os._exit(0)  # temporalio can crash the interpreter at exit; nothing is left to do


if __name__ == "__main__":
    # The output of libraries goes to the log; only our answers go to the benchmark.
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    uvloop.run(_main(sys.argv[1], Setup.load(sys.argv[2]), own))
