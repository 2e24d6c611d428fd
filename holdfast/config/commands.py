"""Command-line parsing of our programs: `--version`, and options that never take another option as their value."""

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.version import __version__


class Command(TyperCommand):
    """A command whose options do not swallow each other.

    `start --thread --json` would otherwise start a thread called `--json`. A value that is spelt like an option can be
    given as `--thread=--json`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject an option without a value, and leave the rest to typer."""
        before_dashes = args[: args.index("--")] if "--" in args else args
        valued = {name for each in self.params if _takes_value(each) for name in each.opts}
        names = {
            name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts) if name[:1] == "-"
        }
        if not ctx.resilient_parsing:  # set while a shell completes a line
            self._refuse_swallowed(ctx, before_dashes, valued, names)
        return super().parse_args(ctx, args)

    def _refuse_swallowed(self, ctx: Any, args: Sequence[str], valued: set[str], names: set[str]) -> None:
        words = pairwise([*args, ""])
        for word, value in words:
            if word not in valued:
                continue
            if value.partition("=")[0] in names:
                ctx.fail(f"{word} needs a value, and {value} is an option. Write {word}={value} if you mean that text.")
            next(words, None)  # a value is not an option, however it is spelt


def _takes_value(param: Any) -> bool:
    return param.param_type_name == "option" and not param.is_flag and not param.count


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        sys.exit(0)


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


def run_main(main: Callable[..., None]) -> None:
    """Run a program that is a single command."""
    app = typer.Typer(add_completion=False)
    app.command(cls=Command)(main)
    app()
