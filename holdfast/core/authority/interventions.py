"""The statements with which people change a run, besides decisions and delegations: formats, limits and outcomes.

Follow-up messages, refinements of the task, extensions of the budget, reclassifications, adoptions of a policy,
statements that steer a run, and revocations of keys.
"""

from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AwareDatetime, Field, model_validator

from holdfast.core.authority.policy import Key
from holdfast.core.authority.statements import Once, Reasoned, read_given
from holdfast.core.base.canonical import parsed, unportable
from holdfast.core.base.names import PersonName
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.llm.messages import size_of, too_long, unfit
from holdfast.core.trust import Trust

OnceT = TypeVar("OnceT", bound=Once)

InterventionOutcome = Literal[
    "accepted",
    "queued",
    "interrupting",
    "busy",
    "malformed",
    "too_long",
    "too_late",
    "too_many",
    "too_much",
    "no_budget",
    "duplicate",
    "id_taken",
    "not_entitled",
    "unsigned",
    "bad_signature",
    "not_paused",
    "not_blocked",
    "budget_spent",
    "not_movable",
    "nothing_to_compact",
    "outdated",
    "unknown_signal",
    "delivered",
    "buffered",
    "counted",
    "not_waiting",
    "wrong_event",
]
"""The outcome of an intervention. `queued`, `interrupting`: a message or refinement that the LLM will read. `busy`: the
agent, whose policy says who may intervene, is not loaded yet. The last five are those of an event: it ended a wait · it
is buffered until a call waits for it · a call counts it, and more have to arrive · no call sleeps, or the agent cannot
sleep · the call that it is sent to waits for another event."""

INBOX = 100
"""Maximum number of messages without a reply from the LLM, taken into the transcript or not; more are rejected.
They are carried from one Temporal run to the next.
"""

INBOX_BYTES = 250_000
"""Maximum total size of these messages as JSON. A single longer message is accepted if no other waits."""

WhenBusy = Literal["queue", "interrupt", "reject"]
"""The handling of a message while the run is busy: it waits for the end of the step · it cancels the current LLM call ·
it is rejected."""

GOOD_SECONDS = 86_400
"""How long a message that our own programs sign is valid: a worker may be down for that long."""

LONGEST_MESSAGE = 7 * 86_400
"""Maximum number of seconds for which a signed message is valid."""


class Message(Once):
    """A person's message; the JSON of the signal and the update `say`."""

    FORMAT: ClassVar[str] = "message/1"

    message: Content
    by: PersonName = ""
    when_busy: WhenBusy = "queue"
    id: str = Field(default="", max_length=100)
    """The sender's id: a message that is sent again with its id counts once. Repeating the same text requires a new
    id. Unsigned messages have one from feature level 2 on."""
    until: AwareDatetime | None = None
    """When a signed message expires; required for one."""


def read_message(payload: Any) -> Message | tuple[InterventionOutcome, str]:
    """Parse a payload as a message; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or the message's text alone.
    """
    if isinstance(payload, str):
        given = parsed(payload)
        payload = given if isinstance(given, dict) and "message" in given else {"message": payload}
    message = read_given(payload, Message, name="message", example='{"message": "…"}')
    if isinstance(message, str):
        return "malformed", message
    if not text_of(message.message).strip():
        return "malformed", "the message is empty"
    if why := unfit(message.message):
        return "malformed", f"the message {why}"
    if why := unportable(message.model_dump(mode="json", exclude={"message"})):
        return "malformed", f"the message holds {why}"
    if excess := too_long(message.message):
        return "too_long", f"the message {excess}; put it into a file in the workspace"
    return message


RefinementKind = Literal["narrow", "rescope", "correct"]
"""How a refinement changes the task: reduces it · replaces it · corrects mistakes in it."""

LONGEST_REFINEMENT = 8_000
"""Maximum size of the text of a refinement, in bytes of JSON; longer text belongs in a file in the workspace."""


REFINE_TOOL = "refine_task"
"""The tool with which an agent asks people to refine its task."""


class Refinement(Once):
    """A person's refinement of a run's task; the JSON of the signal and the update `refine`."""

    FORMAT: ClassVar[str] = "refine/1"

    kind: RefinementKind
    text: str
    """The person's text, which the LLM reads verbatim."""
    by: Annotated[PersonName, Field(min_length=1)]
    when_busy: Literal["queue", "interrupt"] = "queue"
    """During a step: wait for its end, or interrupt the LLM call. It interrupts no tool."""
    id: str = Field(default="", max_length=100)
    """Each id is accepted once in a thread, so that a refinement can be sent again safely; required for a signed
    one."""
    until: AwareDatetime | None = None
    """When a signed refinement expires; required for one."""


def read_refinement(payload: Any) -> Refinement | tuple[InterventionOutcome, str]:
    """Parse a payload as a refinement; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or its JSON text.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= 10 * LONGEST_REFINEMENT else None
    example = '{"kind": "narrow", "text": "…", "by": "alice"}'
    refinement = read_given(payload, Refinement, name="refinement", example=example)
    if isinstance(refinement, str):
        return "malformed", refinement
    if not refinement.text.strip():
        return "malformed", "the text is empty: say what the task is from now on"
    return _text_fault(refinement, "text", longest=LONGEST_REFINEMENT, rest="it") or refinement


LONGEST_SUMMARY = 16_000
"""Maximum size of a person's summary, in bytes of JSON."""


class Compaction(Once, Reasoned):
    """A person's own summary of a run's context; the JSON of the signal and the update `compact` with `summary`."""

    FORMAT: ClassVar[str] = "compact/1"

    summary: str
    """What the LLM reads in place of the conversation so far."""
    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Required for a signed one, which counts once."""
    until: AwareDatetime | None = None
    """When a signed one expires; required for one."""


def read_compaction(payload: Any) -> Compaction | tuple[InterventionOutcome, str]:
    """Parse a payload as a compaction with a summary; if it is invalid, return the outcome and an explanation.

    Args:
        payload: An object.
    """
    compaction = read_given(payload, Compaction, name="compaction", example='{"summary": "…", "by": "alice"}')
    if isinstance(compaction, str):
        return "malformed", compaction
    if not compaction.summary.strip():
        return "malformed", "the summary is empty: without `summary`, the LLM writes one"
    return _text_fault(compaction, "summary", longest=LONGEST_SUMMARY, rest="the rest") or compaction


def _text_fault(
    statement: Refinement | Compaction, field: str, *, longest: int, rest: str
) -> tuple[InterventionOutcome, str] | None:
    """Return why a statement with a person's text for the LLM cannot be recorded; None if it can.

    Args:
        statement: The statement.
        field: The field with the text.
        longest: The most bytes of the text, as JSON.
        rest: The part of a longer text that belongs into a file.
    """
    text = getattr(statement, field)
    if why := unfit(text):
        return "malformed", f"the {field} {why}"
    if why := unportable(statement.model_dump(mode="json", exclude={field})):
        return "malformed", f"the {type(statement).__name__.lower()} holds {why}"
    if (size := size_of(text)) > longest:
        limit = f"the {field} has {size:,} bytes, but the limit is {longest:,}"
        return "too_long", f"{limit}; put {rest} into a file in the workspace, and name the file"
    return None


LONGEST_PAYLOAD = 20_000
"""Maximum length of a statement that `read_once` parses, as JSON text."""


class Extension(Once, Reasoned, Amounts):
    """A person's extension of a run's budget; the JSON of the signal and the update `extend`."""

    FORMAT: ClassVar[str] = "extend/1"

    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Each id is accepted once in a run, so that an extension can be sent again safely; required for a signed one."""
    until: AwareDatetime | None = None
    """When a signed extension expires; required for one."""


class Reclassification(Once, Reasoned):
    """A person's change of a run's class; the JSON of the signal and the update `reclassify`."""

    FORMAT: ClassVar[str] = "reclassify/1"

    agent: str = Field(default="", max_length=200)
    """The agent of the catalog that continues the run; empty to keep the agent."""
    trust: Trust | None = None
    """The trust level from now on, lower than now; None to keep it."""
    budget: Amounts | None = None
    """The limits from now on, lower than now; None to keep them."""
    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Required for a signed one, which counts once."""
    until: AwareDatetime | None = None
    """When a signed one expires; required for one."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.agent or self.trust or self.budget):
            raise ValueError("give at least one of agent, trust and budget")
        return self


class PolicyAdoption(Once, Reasoned):
    """A person's statement that a run adopts a policy; the JSON of the signal and the update `adopt_policy`.

    It names the policy by its digest, and never contains it: the policy comes from a worker, whose operator has put it
    into force there.
    """

    FORMAT: ClassVar[str] = "adopt_policy/1"

    policy: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of the policy (`Policy.hash`)."""
    by: Annotated[PersonName, Field(min_length=1)]
    id: str = Field(default="", max_length=100)
    """Required for a signed one, which counts once."""
    until: AwareDatetime | None = None
    """When a signed one expires; required for one."""


def read_once(payload: Any, kind: type[OnceT], *, name: str, example: str) -> OnceT | tuple[InterventionOutcome, str]:
    """Parse a payload as a statement that counts once; if it is invalid, return the outcome and an explanation.

    Args:
        payload: An object, or its JSON text.
        kind: The type of the statement.
        name: The statement's name, for the explanation.
        example: An example as JSON, for the explanation.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= LONGEST_PAYLOAD else None
    read = read_given(payload, kind, name=name, example=example)
    if isinstance(read, str):
        return "malformed", read
    if why := unportable(read.model_dump(mode="json")):
        return "malformed", f"the {name} holds {why}"
    return read


class Steering(Reasoned):
    """The common fields of signed statements that steer a run.

    A statement is bound to the run and to the state that its sender saw: the number of times that the run was paused,
    resumed, blocked, unblocked or moved so far. Each statement therefore counts at most once, and one sent for an
    earlier pause, even if it was rejected then, cannot end a later one.
    """

    run: str = Field(default="", max_length=200)
    """The id of the thread's current chain of Temporal runs, as shown by `show`; required for a signed statement."""
    seen: int = Field(default=0, ge=0)
    """How often the run had been paused, resumed, blocked, unblocked or moved when its sender last read it."""


class Pause(Steering):
    """A person's pause of a run, or a change of it; the JSON of the signal and update `pause`, if it is signed."""

    FORMAT: ClassVar[str] = "pause/1"

    until: AwareDatetime | None = None
    """When it ends automatically; None for never."""


class Resume(Steering):
    """A person's end of a pause; the JSON of the signal and update `resume`, if it is signed."""

    FORMAT: ClassVar[str] = "resume/1"


class Retry(Steering):
    """A person's permission for a blocked run to continue; the JSON of the signal and update `retry`, if it is
    signed.
    """

    FORMAT: ClassVar[str] = "retry/1"


class Move(Steering):
    """A person's request to move a run to another cluster; the JSON of the signal and update `move`, if it is
    signed.
    """

    FORMAT: ClassVar[str] = "move/1"

    to: str = Field(default="", max_length=36)
    """The id of the only cluster that may import the run; empty for any."""


class KeyRevocation(Reasoned):
    """An approver's revocation of a key; the JSON of the signal and update `revoke_key`. It is final: a revoked key
    stays revoked.
    """

    FORMAT: ClassVar[str] = "key-revocation/1"

    revoked: Key
    """The public key of an approver or a gateway, as the policy lists it."""
