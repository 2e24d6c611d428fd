"""The command line as a whole: its groups of verbs in the order of `--help`, and the process that runs it."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import typer

from holdfast.runtime.cli.options import Invocation
from holdfast.runtime.cli.verbs import decisions, inspect, loops, memory, operate, policies, runs, trust

HELP = """Start agent runs, look at them, and decide what they ask.

    \b
    Examples:
      python starter.py start "Publish 1.2"
      python starter.py watch run-3f09ac
      python starter.py approve run-3f09ac 1
      python starter.py say run-3f09ac "Now announce it"

    \b
    Exit codes:
      0 ok · 1 the run failed, was cancelled or diverges · 2 usage · 3 not found
      4 no server, or no worker · 5 refused
    """


def build_app(*, root: Path, workflows: Callable[[], Sequence[type]]) -> typer.Typer:
    """The command line.

    Args:
        root: The folder of `starter.py`.
        workflows: Loads today's workflow classes, for `replay`.
    """
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help and plain errors: they need no imports, and read well in a pipe
        context_settings={"help_option_names": ["--help", "-h"]},
        help=HELP,
    )
    for module in (runs, decisions, inspect, loops, memory, trust, operate, policies):
        module.verbs.register(app, partial(_carry_out, root=root, workflows=workflows))
    return app


def _carry_out(invocation: Invocation, *, root: Path, workflows: Callable[[], Sequence[type]]) -> int:
    from holdfast.runtime.cli.main import carry_out

    return carry_out(invocation, root=root, workflows=workflows)


def run(app: typer.Typer) -> NoReturn:
    """Run the command line, and end the process with the verb's exit code.

    An exit code comes from the verb's return value, or from `exits.exit_code` for an error; typer's own is 2.
    """
    code = 1
    try:
        for word in sys.argv[1:]:
            word.encode()  # what is not UTF-8 can be neither sent nor recorded
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except UnicodeEncodeError:
        print("starter.py: an argument is not valid UTF-8; check the terminal's encoding", file=sys.stderr)
        code = 2
    except BaseException as error:
        print(f"starter.py: {type(error).__name__}: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, which would change the exit code
