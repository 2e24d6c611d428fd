"""Carries out one verb: the event loop, the session, and the exit code for each error."""

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
"""New objects per garbage collection, in place of 700: most of a command's time goes into imports, which make objects
but no garbage."""


def carry_out(invocation: Invocation, *, workflows: Callable[[], Sequence[type]]) -> int:
    """Carry out a verb and return its exit code, or that of its error. Errors become a line on stderr.

    Args:
        invocation: The verb and its arguments.
        workflows: Loads today's workflow classes.

    Raises:
        typer.BadParameter: An argument cannot be used; typer prints it with the usage, and exits with 2.
    """
    gc.set_threshold(_OBJECTS)
    options = {"HOLDFAST_CATALOG": invocation.catalog} if invocation.catalog else {}
    session = Session(os.environ | options, workflows=workflows, as_json=invocation.as_json, debug=invocation.debug)
    try:
        code = asyncio.run(_run(invocation, session))
        if code not in (OK, WAITING):
            session.print_redirects()
        return code
    except typer.BadParameter:
        raise
    except KeyboardInterrupt:
        _say(session.farewell or invocation.farewell)
        return INTERRUPTED if invocation.interrupted is None else invocation.interrupted
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). Discard the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except HoldfastError as error:
        session.print_redirects()
        _trace(invocation.debug)
        return fail(type(error).__name__, str(error), exit_code(error), as_json=invocation.as_json)
    except Exception as error:
        session.print_redirects()
        _trace(invocation.debug)
        hint = "" if invocation.debug else " Run again with --debug to see where."
        message = f"{type(error).__name__}: {' '.join(str(error).split())}.{hint}"
        return fail(type(error).__name__, message, FAILED, as_json=invocation.as_json)


def fail(kind: str, message: str, code: int, *, as_json: bool) -> int:
    """Report an error on stderr, and return its exit code: a line for people, or with `--json` one JSON object."""
    if as_json:
        _say(json.dumps({"error": kind, "message": message, "exit_code": code}))
    else:
        _say(f"{CLI.name}: {message}")
    return code


async def _run(invocation: Invocation, session: Session) -> int:
    async with session:
        return await invocation.verb(session, **invocation.arguments)


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def _say(message: str) -> None:
    if message:
        from holdfast.cli.text import visible

        try:
            print(visible(message), file=sys.stderr, flush=True)
        except OSError:
            return  # stderr is closed
