"""The `@tool` decorator, which turns a typed Python function into a tool.

The signature and the docstring become the schema that the LLM sees:

    @tool(effect="verifiable", check=find_in_outbox)
    async def send(to: str, text: str, context: ToolContext) -> str:
        '''Send an e-mail to one recipient.'''

Holdfast fills in a parameter annotated `ToolContext`, `Resource[…]` or `Context[…]`, and hides it from the LLM. An
instance's method becomes a tool with `tool(effect="read")(service.method)`.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from holdfast.core.tools.arguments import Arguments, read_arguments
from holdfast.core.tools.companions import check_companion, check_secrets
from holdfast.core.tools.consequences import check_consequence
from holdfast.core.tools.definition import (
    check_callable,
    check_doubts,
    checked_writes,
    fields_of,
    read_docstring,
    read_effect,
)
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.foreign_waits import Resumed
from holdfast.core.tools.not_done import Exceptions
from holdfast.core.tools.progress_file import USUAL_FILE, ProgressFile
from holdfast.core.tools.resources import check_files, files_of, resources_of
from holdfast.core.tools.schemas import arguments_of
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.tools.signatures import hints_of, parameters_of, plain, with_location
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.tools.typed_context import SecretRef, contexts_of, read_context
from holdfast.core.trust import NO_ORIGIN, Origin, Trust
from holdfast.errors import ToolSignatureError

DEFAULT_TIMEOUT = 120.0
"""Default time limit of a call, in seconds."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that the API allows."""

FUNCTIONS = 1_000
"""The most functions whose parameters a process remembers."""

NO_RESOURCES: Mapping[Any, Any] = MappingProxyType({})

R_co = TypeVar("R_co", covariant=True, default=Any)
"""The return type of a tool's function; `Tool` alone means any tool. Parameters are not part of the type, because type
checkers would infer `list[object]` for a list of tools with different ones."""
EffectName = Literal["read", "idempotent", "verifiable", "unsafe"]


@dataclass(frozen=True)
class ToolContext:
    """Information about the current call, for the tool."""

    thread: str
    """The thread's id, which is the workflow id."""
    workspace: Path
    """The run's workspace folder."""
    key: str
    """The effect key, the same on every attempt: pass it to an API as the idempotency key."""
    attempt: int
    """The number of the activity's attempt: 1 at first, higher after a crash."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """The time of the call, the same on every attempt."""
    origin: Origin = NO_ORIGIN
    """The origin of the call; set only for `@tool(origin=True)`."""
    progress: ProgressFile = USUAL_FILE
    """The progress file of the agent; set only for tools that write it."""
    secrets: Secrets = field(default=NO_SECRETS, compare=False)
    """The secrets that the tool declares. In a test, pass your own: `secrets=Secrets({"STRIPE_KEY": "…"})`."""
    trace_headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """`traceparent` and `tracestate` of the call, for requests to services that trace: `get(url, headers={…,
    **context.trace_headers})`. Empty if runs are not traced."""
    pends: bool = field(default=False, compare=False, repr=False)
    """For Holdfast's own tools of MCP servers: the run accepts questions and tasks."""
    resumed: Resumed | None = field(default=None, compare=False, repr=False)
    """For the same tools: what the call continues with."""

    def secret(self, name: str | SecretRef) -> str:
        """Return a secret that the tool declares with `@tool(secrets=(name,))`.

        Call this at the moment of use, and do not store the value.

        Args:
            name: The environment variable that holds the secret, or a reference to it in the run's context.

        Raises:
            SecretNotDeclared: The tool does not declare this secret.
        """
        return self.secrets.value(name.secret if isinstance(name, SecretRef) else name)


@dataclass(frozen=True)
class Found:
    """A check's result: the effect happened, and the call returned `result`. A tool may return it, too."""

    result: Any


@dataclass(frozen=True)
class Absent:
    """A check's result: the effect did not happen. A tool may return it, too: then its call has failed."""


@dataclass(frozen=True)
class Unknown:
    """A check's result: the outcome is unknown, and a person must resolve it. A tool may return it, too."""

    reason: str = ""


@dataclass(frozen=True)
class Preview:
    """The result of a tool's preview function: what the call would do, for the people who decide about it."""

    text: str
    """For example a diff. People see its first 8,000 characters, and can read all of it."""
    base: str = ""
    """Names the state that the text was computed from, such as a digest or a version, in at most 200 characters. The
    preview is computed again when the approved call is about to run: under another base, the call does not run, and
    its result says that the state has changed since it was shown. Empty: the call runs in any case."""


@dataclass(frozen=True)
class Labelled:
    """A tool's result with its own trust level, which overrides that of the tool."""

    result: Any
    trust: Trust


@dataclass(frozen=True)
class Wants:
    """The parameters of a function of a tool, and which of them Holdfast fills in."""

    names: frozenset[str]
    context: tuple[str, ...]
    """Those that get the `ToolContext`."""
    resources: Mapping[str, Any]
    """Those that get a resource: its type by parameter name."""
    models: Mapping[str, type[BaseModel]]
    """Those that get the typed context of the run: its model by parameter name."""


@lru_cache(maxsize=FUNCTIONS)
def wants_of(function: Callable[..., Any]) -> Wants:
    """Read the parameters of a tool's function or companion: once, because it takes longer than most calls.

    Raises:
        ToolSignatureError: A resource or a context is part of a larger type.
    """
    return Wants(
        frozenset(parameter.name for parameter in parameters_of(function)),
        tuple(name for name, hint in hints_of(function).items() if hint is ToolContext),
        resources_of(function),
        contexts_of(function),
    )


@dataclass(frozen=True)
class Tool(Generic[R_co]):
    """A function with its schema, made by `@tool`. Calling it calls the original function."""

    spec: ToolSpec
    function: Callable[..., R_co]
    check: Callable[..., Any] | None
    undo: Callable[..., Any] | None
    """Undoes an effect that has happened; must be safe to repeat, because it can be interrupted like any call."""
    _arguments: type[BaseModel]
    secrets: tuple[str, ...] = ()
    """Environment variables that the tool may read. Not part of the spec, so neither the LLM nor the log sees them."""
    not_done_on: Exceptions = ()
    """Exceptions, besides `NotDone`, that mean that the effect did not happen."""
    files: tuple[str, ...] | None = None
    """The only files of the workspace that it reads and writes: paths, or `{parameter}`; None for any."""
    preview: Callable[..., Any] | None = None
    """Says what a call would do, without doing it."""

    @property
    def _functions(self) -> tuple[Callable[..., Any] | None, ...]:
        return self.function, self.check, self.undo, self.preview

    @cached_property
    def takes_context(self) -> bool:
        """Whether one of its functions takes the context, and so has access to the workspace."""
        return any(wants_of(each).context for each in self._functions if each)

    def files_of(self, arguments: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the files that a call with these arguments reads and writes; None for any."""
        return None if self.files is None else files_of(self.files, arguments)

    @cached_property
    def contexts(self) -> tuple[type[BaseModel], ...]:
        """The models by which its functions want the context of the run."""
        return _models_of(*self._functions)

    @property
    def takes_key(self) -> bool:
        """Whether the function gets the effect key; an idempotent tool without it is idempotent by its arguments."""
        return bool(wants_of(self.function).context)

    def __call__(self, /, *args: Any, **kwargs: Any) -> R_co:
        """Call the original function, for example in a test."""
        return self.function(*args, **kwargs)

    def read(self, arguments: str) -> Arguments:
        """Parse the arguments that the LLM wrote, or their recorded form (`holdfast.core.tools.arguments`).

        Args:
            arguments: JSON text; empty for no arguments.

        Raises:
            ArgumentsInvalid: They are not JSON or do not fit; the message has the path of each problem.
        """
        return read_arguments(self._arguments, arguments)

    def parse(self, arguments: str) -> dict[str, Any]:
        """Parse arguments into values by parameter name, in the annotated types; see `read`."""
        return self.read(arguments).values


def bind(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    context: ToolContext,
    resources: Mapping[Any, Any] = NO_RESOURCES,
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Select the keyword arguments that a tool's function or check declares, context and resources included.

    Args:
        function: The function.
        arguments: By parameter name.
        context: Information about the call.
        resources: By type.
        values: The typed context of the run; None for no context.

    Raises:
        ContextInvalid: The function wants the context of the run by a model that it does not fit.
    """
    names = (wants := wants_of(function)).names
    bound = {name: value for name, value in arguments.items() if name in names}
    bound |= {name: context for name in wants.context if name in names}
    if resources:
        bound |= {name: resources[kind] for name, kind in wants.resources.items() if name in names}
    bound |= {name: read_context(kind, values or {}, more=True) for name, kind in wants.models.items() if name in names}
    return bound


@overload
def tool(function: Callable[..., R_co], /) -> Tool[R_co]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | EffectName = Effect.UNSAFE,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    settles_within: float | None = None,
    not_done_on: Exceptions = (),
    secrets: Sequence[str] = (),
    trust: Trust = "tool",
    trusted_only: bool = False,
    origin: bool = False,
    files: Sequence[str] | None = None,
    writes: Sequence[str] = (),
    preview: Callable[..., Any] | None = None,
    consequence: str = "",
) -> Callable[[Callable[..., R_co]], Tool[R_co]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str = Effect.UNSAFE,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    settles_within: float | None = None,
    not_done_on: Exceptions = (),
    secrets: Sequence[str] = (),
    trust: Trust = "tool",
    trusted_only: bool = False,
    origin: bool = False,
    files: Sequence[str] | None = None,
    writes: Sequence[str] = (),
    preview: Callable[..., Any] | None = None,
    consequence: str = "",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn a typed function, sync or async, into a tool.

    Args:
        function: The function; its docstring's summary and `Args:` become the descriptions.
        name: The tool's name; the function's name by default.
        description: When and how to call the tool, for the LLM; the docstring's summary by default.
        effect: The effect class of a call (`holdfast.core.tools.effects.Effect`). The default assumes the worst.
        check: For `verifiable`: a function, sync or async, that checks whether an interrupted call took effect. It
            takes the context and any of the tool's arguments and returns `Found(result)`, `Absent()` or
            `Unknown(reason)`.
        undo: A function that undoes the effect if it has happened. It takes the context and any of the tool's
            arguments, and may run more than once. Holdfast offers it to the person who resolves an unknown outcome.
        timeout: Time limit of a call, in seconds.
        settles_within: Seconds after the end of an attempt in which its request may still arrive. Until they are over,
            nothing counts as proof that the effect did not happen, and the call does not run again. None for `timeout`.
        not_done_on: Exceptions of the function that mean, like `NotDone`, that the effect did not happen. After any
            other exception, the outcome is unknown.
        secrets: Environment variables of the worker that the functions may read with `context.secret(name)`.
        trust: Trust level of the results (`holdfast.core.trust`): `web` for content that anybody may have written.
        trusted_only: Require approval, regardless of the policy, if the LLM has read content that no person vouches
            for.
        origin: Set `context.origin`: the agent, the person who gave the task, and the trust level of the LLM's text.
        files: The only files of the workspace that the functions read and write: paths, or `{parameter}` for one that
            an argument names; `()` for none. Without this, a tool that takes the context may use any file: see
            `holdfast.workspace.tainted_files`.
        writes: Fields of the run's context that the functions may change, by returning `ContextUpdate`.
        preview: A function, sync or async, that says what a call would do, and does nothing. It takes the context and
            any of the tool's arguments, and returns text, such as a diff, or `Preview(text, base=…)`. It runs before
            people are asked to approve a call, for at most 30 seconds, and they see its text with the request.
        consequence: What a call does, in a sentence for the people who decide about it: `pays {cents} to {iban}`. Each
            placeholder is the name of a parameter, and a brace is doubled.

    Returns:
        The tool; or, without `function`, a decorator that makes it.

    Raises:
        ToolSignatureError: The function cannot become a tool, for example because it has no description, or `check`,
            `undo` or `preview` cannot be called with its arguments, or `consequence` names what is no parameter; the
            message has the function's file and line, and names the parameter.
    """

    def make(function: Callable[..., Any]) -> Tool:
        try:
            return define(function)
        except ToolSignatureError as error:
            raise ToolSignatureError(with_location(function, str(error))) from None

    def define(function: Callable[..., Any]) -> Tool:
        check_callable(function)
        tool_name = name or plain(function).__name__
        if not _NAME.fullmatch(tool_name):
            raise ToolSignatureError(f"tool {tool_name!r}: a name has up to 64 letters, digits, '_' or '-'")
        kind = read_effect(tool_name, effect, check)
        check_doubts(tool_name, kind, settles_within, not_done_on)
        summary, described = read_docstring(plain(function))
        text = summary if description is None else inspect.cleandoc(description).strip()
        if not text.strip():
            raise ToolSignatureError(
                f"tool {tool_name!r} has no description, by which the LLM decides when to call it; write a docstring, "
                'or @tool(description="…")'
            )
        fields = fields_of(tool_name, function, described, context=ToolContext)
        names = [str(field.alias) for _, field in fields.values()]
        for role, companion in (("check", check), ("undo", undo), ("preview", preview)):
            check_companion(tool_name, role, companion, parameters=names, context=ToolContext)
        arguments, schema = arguments_of(tool_name, fields)
        spec = ToolSpec(
            name=tool_name,
            description=text,
            parameters=schema,
            effect=kind,
            timeout=timeout,
            settles_within=settles_within,
            undoable=undo is not None,
            previews=preview is not None,
            consequence=check_consequence(tool_name, consequence, parameters=names),
            trust=trust,
            trusted_only=trusted_only,
            wants_origin=origin,
            wants_context=bool(_models_of(function, check, undo, preview)),
            writes=checked_writes(tool_name, writes, _models_of(function, check, undo)),
        )
        check_secrets(tool_name, secrets, [function, check, undo, preview], context=ToolContext)
        check_files(tool_name, files, parameters=names)
        only = None if files is None else tuple(files)
        return Tool(spec, function, check, undo, arguments, tuple(secrets), tuple(not_done_on), only, preview)

    return make(function) if function is not None else make


def _models_of(*functions: Callable[..., Any] | None) -> tuple[type[BaseModel], ...]:
    return tuple(dict.fromkeys(kind for each in functions if each for kind in wants_of(each).models.values()))
