"""`python -m bench.peers.reader CONTENDER SETUP RUN`: reads a run's stream in a process of its own.

It writes each piece to standard output as a line of JSON, with its arrival, until the stream ends.
"""

import asyncio
import importlib
import json
import os
import sys
import time
from typing import IO

import uvloop

from bench.peers.contender import Setup
from bench.peers.contenders import module_of


async def _main(name: str, setup: Setup, run: str, output: IO[str]) -> None:
    module = importlib.import_module(module_of(name))
    output.write("{}\n")  # the imports are done
    output.flush()
    await asyncio.to_thread(sys.stdin.readline)  # the run has been started
    async for piece in module.read(setup, run):
        at = time.monotonic()
        output.write(json.dumps({"kind": piece.kind, "text": piece.text, "at": at}) + "\n")
        output.flush()
    os._exit(0)  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    # The output of libraries goes to the log; only our lines go to the benchmark.
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    uvloop.run(_main(sys.argv[1], Setup.load(sys.argv[2]), sys.argv[3], own))
