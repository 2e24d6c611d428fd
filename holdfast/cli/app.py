"""The command line as a whole: its groups of verbs in the order of `--help`, and the process that runs it."""

import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from holdfast.cli.options import Invocation
from holdfast.cli.verbs import (
    approvers,
    budgets,
    decisions,
    evaluating,
    events,
    forks,
    inspect,
    keep,
    loops,
    mcp_servers,
    memory,
    operate,
    policies,
    portable,
    projects,
    runs,
    schedules,
    signing,
    start,
    trust,
    verify,
)
from holdfast.config.commands import Command, Version
from holdfast.config.programs import CLI, Program, has_command

HELP = """Start agent runs, look at them, and decide what they ask.

    \b
    Examples:
      {program} start "Publish 1.2"
      {program} watch run-3f09ac
      {program} approve run-3f09ac 1
      {program} say run-3f09ac "Now announce it"

    \b
    Exit codes:
      0 ok · 1 the run failed, was cancelled or diverges; `verify`: altered · 2 usage · 3 not found
      4 no server, database or worker · 5 refused · 6 the run waits for a person (`start --wait`)
      7 `verify`: not proven · 130 Ctrl-C
    """

RUN = "Run agents"
GROUPS = {
    RUN: (projects, start, runs, budgets, events, loops, schedules),
    "Decide": (decisions, signing, approvers, trust),
    "Look": (inspect, verify),
    "Move and compare": (portable, forks, evaluating),
    "Memory": (memory,),
    "Operate": (operate, policies, mcp_servers, keep),
}
"""The headings of `--help`, and the verbs below each."""

_HELP_OPTIONS = {"help_option_names": ["--help", "-h"]}


def build_app(*, workflows: Callable[[], Sequence[type]]) -> typer.Typer:
    """The command line.

    Args:
        workflows: Loads today's workflow classes, for `replay`.
    """
    app = typer.Typer(
        cls=_Grouped,
        add_completion=has_command(),  # shells complete a command, not `python starter.py`
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help and plain errors: they need no imports, and read well in a pipe
        context_settings=_HELP_OPTIONS,
    )
    app.callback(help=HELP.format(program=CLI.command()))(_options)
    for heading, modules in GROUPS.items():
        for module in modules:
            module.verbs.register(app, partial(_carry_out, workflows=workflows), heading=heading)
    return app


def add_program(app: typer.Typer, program: Program, module: str, *, help: str) -> None:
    """Add the verb that runs another of our programs. Its module is imported only when the verb runs or shows help.

    Args:
        app: The command line.
        program: The program.
        module: The name of the module that has the program's `main`.
        help: The line in the list of verbs: the first sentence of `main`'s docstring.
    """

    def run_program(context: typer.Context) -> None:
        main = import_module(module).main
        single = typer.Typer(add_completion=False, context_settings=_HELP_OPTIONS)
        single.command(cls=Command, help=cleandoc(main.__doc__).replace(f"python {program.file}", program.command()))(
            main
        )
        single(context.args, prog_name=context.command_path)

    pass_through: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(program.verb, help=help, add_help_option=False, context_settings=pass_through, rich_help_panel=RUN)(
        run_program
    )


class _Grouped(TyperGroup):
    """Lists the verbs below their headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each heading, in the order of `GROUPS`."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        for heading in GROUPS:
            rows = [
                (name, command.get_short_help_str(limit))
                for name, command in self.commands.items()
                if getattr(command, "rich_help_panel", None) == heading
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _options(version: Version = False) -> None:
    """Declare the options that precede every verb."""


def _carry_out(invocation: Invocation, *, workflows: Callable[[], Sequence[type]]) -> int:
    from holdfast.cli.main import carry_out

    return carry_out(invocation, workflows=workflows)


def _run_for_program(app: typer.Typer) -> int:
    """Run the command line with JSON output; usage errors are JSON, too."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        from holdfast.cli.main import fail

        return fail("UsageError", error.format_message(), getattr(error, "exit_code", 2), as_json=True)
    return code if isinstance(code, int) else 0


def run(app: typer.Typer) -> NoReturn:
    """Run the command line, and end the process with the verb's exit code.

    An exit code comes from the verb's return value, or from `exits.exit_code` for an error; typer's own is 2.
    """
    code = 1
    gc.set_threshold(50_000)  # the imports of a verb make many objects and no garbage
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still shows all other characters
    try:
        for word in sys.argv[1:]:
            word.encode()  # text that is not UTF-8 can be neither sent nor recorded
        if "--json" in sys.argv:
            code = _run_for_program(app)
        else:
            app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except UnicodeEncodeError:
        print(f"{CLI.name}: an argument is not valid UTF-8; check the terminal's encoding", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:  # before the verb began; `carry_out` handles later ones
        code = 130
    except BaseException as error:
        print(f"{CLI.name}: {type(error).__name__}: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, which would change the exit code
