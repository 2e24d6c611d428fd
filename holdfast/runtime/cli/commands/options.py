"""What commands share: options, examples, and how a group of them becomes part of the command line."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TypeVar

import typer

if TYPE_CHECKING:
    from holdfast.runtime.cli.verbs import Verbs

Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, as `list` shows it.")]
Request = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's number, as `pending` shows it.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who you are. [default: HOLDFAST_BY, or your login name]")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; recorded, and told to the agent.")]
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Sign with this private key (`keygen`). [default: HOLDFAST_KEY]")
]
Digest = Annotated[str | None, typer.Option(metavar="HEX", help="Count only if the request has this digest.")]
Blocks = Annotated[
    Path | None,
    typer.Option(
        "--content", metavar="FILE", help="Content blocks as JSON (text, images), instead of text; - reads stdin."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout: one object, or one a line.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

Function = TypeVar("Function", bound=Callable[..., None])


class CarryOut(Protocol):
    """Carries out a verb, and ends the command with its exit code."""

    def __call__(
        self, verb: "Callable[[Verbs], Awaitable[int]]", *, json: bool, debug: bool, **options: Any
    ) -> NoReturn: ...


def examples(*lines: str, name: str | None = None) -> Callable[[Function], Function]:
    """Make a method of a group a command, with these examples in its help.

    Args:
        lines: What follows `python starter.py`.
        name: The verb, where it is not the method's name.
    """

    def mark(function: Function) -> Function:
        # The first character keeps the lines of the epilog as they are.
        epilog = "\b\nExamples:\n" + "\n".join(f"  python starter.py {line}" for line in lines)
        vars(function)["command"] = {"name": name, "epilog": epilog}
        return function

    return mark


class Group:
    """Commands that belong together.

    Args:
        carry_out: What each does.
    """

    under = ""
    """The word that comes before each; empty for none."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def register(self, app: typer.Typer) -> None:
        """Make them part of the command line, in their order here."""
        if self.under:
            group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=type(self).__doc__)
            app.add_typer(group, name=self.under)
            app = group
        for attribute, function in vars(type(self)).items():
            if command := getattr(function, "command", None):
                app.command(command["name"], epilog=command["epilog"])(getattr(self, attribute))


def content(text: str | None, blocks: Path | None) -> Any:
    """What is to be said: text, or the content blocks in a file."""
    if (text is None) == (blocks is None):
        raise typer.BadParameter("say it as text, or name a file with --content")
    if blocks is None:
        return text
    import json

    try:
        given = json.loads(sys.stdin.read() if str(blocks) == "-" else blocks.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--content {blocks} cannot be read: {error}") from None
    if not isinstance(given, list) or not all(isinstance(block, dict) for block in given):
        raise typer.BadParameter(f'--content {blocks} is no list of blocks such as {{"type": "text", "text": "…"}}')
    return given
