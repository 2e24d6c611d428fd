"""The options of a start, the checks of its task and thread id, and its description for the Web UI."""

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

from holdfast.config.programs import CLI
from holdfast.core.agents.names import id_if_any
from holdfast.core.authority.statements import Lift
from holdfast.core.base.text import code, quoted
from holdfast.core.base.trace_context import traceparent_or_none
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.llm.conversation import Conversation
from holdfast.core.llm.messages import read_content, too_long, unfit
from holdfast.core.mac.seals import LAUNCHER
from holdfast.core.mac.starts import Start
from holdfast.core.nodes import Nodes, TrustScope
from holdfast.core.stores import origin_of
from holdfast.core.tools.typed_context import context_values
from holdfast.errors import TaskInvalid, ThreadIdInvalid

DETAILS_CHARS = 4_000
"""Maximum length of a task in the Web UI's details, in characters."""

StartT = TypeVar("StartT", bound=Start)


class StartOptions(BaseModel):
    """Options of a start, besides its task and its thread. Every surface creates one, and `Threads.start` reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    agent: Annotated[str | None, AfterValidator(lambda name: name and id_if_any(name))] = None
    """The agent's id or title; None for that of the re-opened thread, or the catalog's first."""
    workspace: str | None = None
    """A folder on the worker; None for that of the re-opened thread, or for a new folder for the run."""
    idle_limit: float | None = None
    """Seconds that the run stays open for messages after the LLM has answered; None for the agent's own limit."""
    by: str = ""
    """The person who gives the task."""
    by_proven: bool = True
    """Whether the caller has authenticated that person; otherwise the run cannot use their memories."""
    budget: Budget | None = None
    """The run's budget, within the agent's own; None for the agent's."""
    context: dict[str, Any] | None = None
    """The run's typed context, as JSON (`holdfast.core.tools.typed_context.context_values`); None for that of the
    re-opened thread."""

    @field_validator("context", mode="before")
    @classmethod
    def _as_recorded(cls, given: Any) -> dict[str, Any] | None:
        return None if given is None else context_values(given)

    when_blocked: Literal["wait", "fail"] | None = None  # the module of `WhenBlocked` loads Temporal's client
    """`fail` for an unattended run, which fails instead of waiting for a person; None for the agent's own."""
    nodes: Nodes = ()
    """The nodes that may execute the run, any of which is enough (`holdfast.core.nodes`); empty for those of its agent,
    and of the thread so far, which they can only narrow."""
    conversation: Conversation = ()
    """A conversation from elsewhere (`holdfast.core.llm.conversation`), as a claim; empty for none."""

    traceparent: Annotated[str, AfterValidator(traceparent_or_none)] = ""
    """The caller's span, to which the traces of the run link; empty for none, and for a text that is no traceparent: a
    start never fails because of its trace."""
    lift: Lift | None = None
    """For a closed thread: a lift of one of its constraints, which the policy judges when the agent is loaded."""

    @property
    def needs_seal(self) -> bool:
        """Whether only a process with the fleet key can give some of these to a run of a new thread."""
        return self.context is not None or bool(self.nodes or self.conversation)

    @property
    def scope(self) -> TrustScope:
        """The layer that the start adds to the trust scope; empty if it adds none."""
        return (self.nodes,) if self.nodes else ()


def check_task(given: Any) -> Content:
    """Parse a task from text, content blocks or their JSON, and reject one that no run could start with.

    Raises:
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
    """
    try:
        task = read_content(given)
    except ValueError as error:
        example = '{"type": "text", "text": "…"}'
        raise TaskInvalid(f"the task is neither text nor a list of content blocks such as {example}: {error}") from None
    if isinstance(task, str) and not task.isascii() and task != task.encode("utf-8", "replace").decode():
        raise TaskInvalid("the task is not valid UTF-8; check the terminal's encoding")
    if why := unfit(task):
        raise TaskInvalid(f"the task {why}")
    if not text_of(task).strip():
        raise TaskInvalid("the task is empty; say what the agent should do")
    if excess := too_long(task):
        raise TaskInvalid(f"the task {excess}; put it into a file in the workspace, and name the file in the task")
    return task


def check_thread_id(thread: str) -> str:
    """Return the id if it can name a thread, or a log that a reset has archived.

    Raises:
        ThreadIdInvalid: The id is empty, over 200 characters, or has invisible characters.
    """
    too_long = len(thread) > 200 and len(origin_of(thread) or thread) > 200
    if not thread or too_long or not thread.isprintable() or thread != thread.strip():
        shown = ascii(thread if len(thread) <= 60 else f"{thread[:60]}…")
        raise ThreadIdInvalid(
            f"{shown} cannot be a thread id; use 1 to 200 printable characters, with no space at either end"
        )
    return thread


def check_own_id(thread: str) -> str:
    """Return the id if a run can have it.

    Raises:
        ThreadIdInvalid: The id cannot name a thread, names a log that a reset has archived, or is a launcher's.
    """
    check_thread_id(thread)
    if origin := origin_of(thread):
        raise ThreadIdInvalid(
            f"{thread!r} is an archived branch of {origin!r}, which a reset abandoned, and no run can continue it; "
            f"continue {origin!r}, or choose another id"
        )
    if thread.startswith(LAUNCHER):
        raise ThreadIdInvalid(f"{thread!r} begins with {LAUNCHER!r}, as what schedules start does; choose another id")
    return thread


def new_thread_id(agent: str | None) -> str:
    """Return a new thread id that a person can type: `releaser-3f09ac`."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in agent or "run")[:64]
    return f"{name.strip('-') or 'run'}-{secrets.token_hex(3)}"


def details(task: Content, *, agent: str | None, thread: str, workspace: str | None, continued: bool) -> str:
    """Return the description of a run for the Web UI, in Markdown."""
    unchanged = "as before" if continued else None
    return "\n".join(
        [
            f"Agent: {f'`{code(agent)}`' if agent else unchanged or 'the first of the catalog'}  ",
            f"Workspace: {f'`{code(workspace)}`' if workspace else unchanged or 'its own folder'}  ",
            f"Follow it: `{code(CLI.command('watch', thread))}`  ",
            "What it waits for: *Current Details*, on this page",
            "",
            quoted(text_of(task), DETAILS_CHARS),
        ]
    )


def issued(start: StartT) -> StartT:
    """Return the start with a start id and the current time; it is valid if its sender has the fleet key."""
    return start.model_copy(update={"start": secrets.token_hex(8), "issued_at": datetime.now(UTC)})
