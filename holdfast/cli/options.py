"""Arguments and options that several verbs share, and the decorator that makes a function a verb."""

import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.config.commands import Command
from holdfast.config.programs import CLI

if TYPE_CHECKING:
    from holdfast.core.llm.conversation import Conversation

Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, as `list` shows it.")]
Request = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's number, as `pending` shows it.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who you are. [default: HOLDFAST_BY, or your login name]")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the log; the agent reads that of a denial.")]
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Sign with this private key (`keygen`). [default: HOLDFAST_KEY]")
]
Digest = Annotated[
    str | None, typer.Option(metavar="HEX", help="Refuse unless the request's digest is, or begins with, this.")
]
Blocks = Annotated[
    Path | None,
    typer.Option(
        "--content", metavar="FILE", help="Content blocks as JSON (text, images), instead of text; - reads stdin."
    ),
]
CatalogName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The workers' catalog, for its own stores: package.module:attribute. [default: HOLDFAST_CATALOG]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout: one object, or one a line.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

Verb = Callable[..., Awaitable[int]]
"""A coroutine function that takes the session and the arguments, carries out the verb, and returns the exit code."""

_AnyVerb = TypeVar("_AnyVerb", bound=Verb)


@dataclass(frozen=True)
class Invocation:
    """A verb with its arguments, for `holdfast.cli.main.carry_out`."""

    verb: Verb
    arguments: dict[str, Any]
    as_json: bool
    debug: bool
    catalog: str | None
    interrupted: int | None
    """The exit code on Ctrl-C; None for the usual one."""
    farewell: str
    """The message on Ctrl-C."""


CarryOut = Callable[[Invocation], int]


@dataclass(frozen=True)
class _Declared:
    verb: Verb
    name: str | None
    examples: tuple[str, ...]
    local: bool
    interrupted: int | None
    farewell: str

    def command(self, carry_out: CarryOut) -> Callable[..., None]:
        """Return the function that typer calls: with the verb's own parameters, and those that all verbs share."""

        def command(*, json: bool, debug: bool, catalog: str | None = None, **arguments: Any) -> None:
            invocation = Invocation(self.verb, arguments, json, debug, catalog, self.interrupted, self.farewell)
            raise typer.Exit(carry_out(invocation))

        signature = inspect.signature(self.verb)
        _, *own = signature.parameters.values()  # the first one is the session
        shared: dict[str, tuple[Any, Any]] = {} if self.local else {"catalog": (CatalogName, None)}
        shared |= {"json": (Json, False), "debug": (Debug, False)}
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            *(each.replace(kind=keyword) for each in own),
            *(
                inspect.Parameter(name, keyword, default=default, annotation=kind)
                for name, (kind, default) in shared.items()
            ),
        ]
        command.__doc__, command.__name__ = self.verb.__doc__, self.verb.__name__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(command)["__signature__"] = signature.replace(parameters=parameters, return_annotation=None)
        return command


@dataclass(frozen=True)
class Verbs:
    """A group of verbs. Each module in `holdfast.cli.verbs` has one."""

    under: str = ""
    """The word that precedes each verb; empty for none."""
    help: str = ""
    """Help for that word."""
    _declared: list[_Declared] = field(default_factory=list)

    def verb(
        self,
        *examples: str,
        name: str | None = None,
        local: bool = False,
        interrupted: int | None = None,
        farewell: str = "",
    ) -> Callable[[_AnyVerb], _AnyVerb]:
        """Make a coroutine function a verb: its docstring is the help, its parameters after the session the options.

        Args:
            examples: Examples for the help, without the program's name.
            name: The verb; None for the function's name.
            local: The verb uses neither Temporal nor a store.
            interrupted: The exit code on Ctrl-C; None for the usual one.
            farewell: The message on Ctrl-C.
        """

        def declare(function: _AnyVerb) -> _AnyVerb:
            self._declared.append(_Declared(function, name, examples, local, interrupted, farewell))
            return function

        return declare

    def register(self, app: typer.Typer, carry_out: CarryOut, *, heading: str) -> None:
        """Add the verbs to the command line in the order of their declaration, below a heading of its help."""
        if self.under:
            group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=self.help)
            app.add_typer(group, name=self.under, rich_help_panel=heading)
            app = group
        for each in self._declared:
            # `\b` keeps click from rewrapping the lines of the epilog.
            epilog = "\b\nExamples:\n" + "\n".join(f"  {CLI.command()} {line}" for line in each.examples)
            app.command(each.name, cls=Command, epilog=epilog, rich_help_panel=heading)(each.command(carry_out))


def read_content(text: str | None, blocks: Path | None, *, name: str) -> Any:
    """Return the user's content: text, or the content blocks in a file.

    Args:
        text: The text; `-` for stdin.
        blocks: The file; `-` for stdin.
        name: The argument's name, for errors.
    """
    if text is None and blocks is None:
        raise typer.BadParameter(f"{name} is missing: say it as text, or name a file with --content")
    if text is not None and blocks is not None:
        raise typer.BadParameter(f"{name} was given twice: say it as text, or name a file with --content, not both")
    from holdfast.core.llm.messages import MAX_BLOCKS_BYTES, MAX_TEXT_BYTES

    if blocks is None:
        return read_stdin(MAX_TEXT_BYTES) if text == "-" else text
    import json

    try:
        piped = str(blocks) == "-"
        value = json.loads(read_stdin(2 * MAX_BLOCKS_BYTES) if piped else blocks.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--content {blocks} cannot be read: {error}") from None
    if not isinstance(value, list):
        raise typer.BadParameter(f'--content {blocks} is not a list of blocks such as {{"type": "text", "text": "…"}}')
    return value


ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="JSON",
        help="The run's typed context, as the agent's model has it: JSON, or @FILE. [default: none]",
    ),
]


NodesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--nodes",
        metavar="SELECTOR",
        help="Only these nodes may execute the run: a name, a label (region=eu), a key (key:BASE64); commas join what "
        "one node must have. Repeat it for alternatives. [default: the agent's]",
    ),
]


ConversationOption = Annotated[
    Path | None,
    typer.Option(
        "--conversation",
        metavar="FILE",
        help="A conversation from elsewhere, which the LLM reads as a claim: JSON as in Chat Completions, or the "
        "output of `transcript --json`; `-` for stdin. [default: none]",
    ),
]


def read_conversation_file(path: Path | None) -> "Conversation":
    """Return the conversation in an option's file: a JSON list, an object with `messages`, or one message per line.

    Args:
        path: The file; `-` for stdin; None for no conversation.

    Raises:
        typer.BadParameter: The file cannot be read, is too large, or is no JSON.
        TaskInvalid: It is no conversation, or one that is too long.
    """
    if path is None:
        return ()
    import json

    from holdfast.core.llm.conversation import MAX_CONVERSATION_BYTES, read_conversation

    limit = 10 * MAX_CONVERSATION_BYTES  # the file may have more fields than the LLM reads
    try:
        if str(path) == "-":
            text = read_stdin(limit)
        else:
            with path.expanduser().open("rb") as file:
                text = file.read(limit + 1).decode()
        if len(text) > limit:
            raise typer.BadParameter(f"--conversation {path} is larger than {limit:,} bytes")
        lines = [line for line in text.split("\n") if line.strip()]
        several = len(lines) > 1 and lines[0].startswith("{") and lines[0].rstrip().endswith("}")
        value = [json.loads(line) for line in lines] if several else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--conversation {path} cannot be read: {error}") from None
    if isinstance(value, dict) and "messages" not in value:
        value = [value]  # a transcript with one line
    return read_conversation(value)


def read_nodes(selectors: list[str] | None) -> tuple[str, ...]:
    """Return the selectors of nodes in an option.

    Raises:
        typer.BadParameter: One selects nothing, or there are too many.
    """
    from holdfast.core.nodes import MAX_SELECTORS, check_selector

    try:
        nodes = tuple(map(check_selector, selectors or ()))
    except ValueError as error:
        raise typer.BadParameter(f"--nodes: {error}") from None
    if len(nodes) > MAX_SELECTORS:
        raise typer.BadParameter(f"--nodes: at most {MAX_SELECTORS} of them")
    return nodes


def read_context(text: str | None) -> dict[str, Any] | None:
    """Return the typed context in an option.

    Args:
        text: JSON, or `@` and the name of a file that holds it; None for no context.

    Raises:
        typer.BadParameter: The file cannot be read, or is too large; or the text is no JSON object.
    """
    if text is None:
        return None
    import json

    from holdfast.core.tools.typed_context import CONTEXT_BYTES

    try:
        if text.startswith("@"):
            with Path(text[1:]).expanduser().open("rb") as file:
                text = file.read(2 * CONTEXT_BYTES + 1).decode()
        if len(text) > 2 * CONTEXT_BYTES:
            raise typer.BadParameter(f"--context: a context has at most {CONTEXT_BYTES:,} bytes of JSON")
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--context cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter('--context is no JSON object such as {"customer": "4711"}')
    return value


def read_stdin(limit: int) -> str:
    """Read piped standard input, without trailing line breaks.

    Args:
        limit: The most bytes to read.

    Raises:
        typer.BadParameter: Stdin is a terminal, closed, empty, too long, or not UTF-8.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise typer.BadParameter("- reads standard input, and nothing is piped into it: … - < task.md")
    try:
        raw = sys.stdin.buffer.read(limit + 1)
        text = raw.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"standard input cannot be read as UTF-8: {error}") from None
    if len(raw) > limit:
        raise typer.BadParameter(f"standard input has more than {limit:,} bytes: put it into a file in the workspace")
    if not text.strip():
        raise typer.BadParameter("standard input is empty")
    return text
