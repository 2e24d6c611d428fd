"""Carries out one verb: the event loop, the session, and the exit code that each error leads to."""

import asyncio
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import typer

from holdfast.cli.exits import FAILED, INTERRUPTED, OK, WAITING, exit_code
from holdfast.cli.options import Invocation
from holdfast.cli.session import Session
from holdfast.config.programs import CLI
from holdfast.errors import HoldfastError

_OBJECTS = 50_000
"""How many new objects lead to a garbage collection, in place of 700: most of a command's time goes into imports, which
make objects and no garbage."""


def carry_out(invocation: Invocation, *, workflows: Callable[[], Sequence[type]]) -> int:
    """Carry out a verb and return the exit code: the verb's own, or that of the error. Errors become a line on stderr.

    Args:
        invocation: The verb, and what was typed.
        workflows: Loads today's workflow classes.

    Raises:
        typer.BadParameter: A value that was typed cannot be used; typer prints it with the usage, and exits with 2.
    """
    gc.set_threshold(_OBJECTS)
    given = {"HOLDFAST_CATALOG": invocation.catalog} if invocation.catalog else {}
    session = Session(os.environ | given, workflows=workflows, as_json=invocation.as_json, debug=invocation.debug)
    try:
        code = asyncio.run(_run(invocation, session))
        if code not in (OK, WAITING):
            session.say_redirects()
        return code
    except typer.BadParameter:
        raise
    except KeyboardInterrupt:
        _say(session.farewell or invocation.farewell)
        return INTERRUPTED if invocation.interrupted is None else invocation.interrupted
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except HoldfastError as error:
        session.say_redirects()
        _trace(invocation.debug)
        return fail(type(error).__name__, str(error), exit_code(error), as_json=invocation.as_json)
    except Exception as error:
        session.say_redirects()
        _trace(invocation.debug)
        hint = "" if invocation.debug else " Run again with --debug to see where."
        words = f"{type(error).__name__}: {' '.join(str(error).split())}.{hint}"
        return fail(type(error).__name__, words, FAILED, as_json=invocation.as_json)


def fail(kind: str, message: str, code: int, *, as_json: bool) -> int:
    """Report an error on stderr, and return its exit code: a line for people, or with `--json` one JSON object."""
    if as_json:
        _say(json.dumps({"error": kind, "message": message, "exit_code": code}))
    else:
        _say(f"{CLI.name}: {message}")
    return code


async def _run(invocation: Invocation, session: Session) -> int:
    async with session:
        return await invocation.verb(session, **invocation.given)


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def _say(words: str) -> None:
    if words:
        from holdfast.cli.text import visible

        try:
            print(visible(words), file=sys.stderr, flush=True)
        except OSError:
            return  # nobody reads it
