"""Carries out one verb: settings, the event loop, and what every error leads to."""

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.runtime.cli.exits import FAILED, INTERRUPTED, OK, exit_code

if TYPE_CHECKING:
    from holdfast.runtime.cli.verbs import Verbs
    from holdfast.runtime.reading.record import Opener


def carry_out(
    verb: Callable[["Verbs"], Awaitable[int]],
    *,
    root: Path,
    record: "Opener",
    as_json: bool,
    debug: bool,
    interrupted: int = INTERRUPTED,
    farewell: str = "",
) -> int:
    """Carry out a verb and return the exit code. Errors become a sentence on stderr.

    Args:
        verb: What to do with the verbs.
        root: The folder of `starter.py`.
        record: Opens the permanent record, should the verb need it.
        as_json: Results as JSON.
        debug: Show tracebacks.
        interrupted: The exit code of Ctrl-C.
        farewell: What to say on Ctrl-C.
    """
    try:
        return asyncio.run(_run(verb, root=root, record=record, as_json=as_json, debug=debug))
    except KeyboardInterrupt:
        _say(farewell)
        return interrupted
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except HoldfastError as error:
        _trace(debug)
        _say(f"starter.py: {error}")
        return exit_code(error)
    except Exception as error:
        _trace(debug)
        hint = "" if debug else " Run again with --debug to see where."
        _say(f"starter.py: {type(error).__name__}: {' '.join(str(error).split())}.{hint}")
        return FAILED


async def _run(
    verb: Callable[["Verbs"], Awaitable[int]], *, root: Path, record: "Opener", as_json: bool, debug: bool
) -> int:
    # Here, so that the words for bad settings and the help come without a quarter of a second of imports.
    from holdfast.runtime.config.settings import Settings

    settings = Settings.from_env(os.environ, root=root)
    from holdfast.runtime.cli.output import Output
    from holdfast.runtime.cli.verbs import Verbs

    async with AsyncExitStack() as cleanup:
        output = Output(as_json=as_json)
        verbs = Verbs(settings, os.environ, output=output, root=root, debug=debug, record=record, cleanup=cleanup)
        return await verb(verbs)


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def _say(words: str) -> None:
    if words:
        try:
            print(words, file=sys.stderr, flush=True)
        except OSError:
            return  # nobody is there to be told
