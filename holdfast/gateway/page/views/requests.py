"""Open requests as people decide them: what will happen, all of the call, the terms, and which decisions they can make.

1. Everything that a decision is bound to is shown: the arguments, the context and the preview, in full.
2. A decision that a person cannot make has the reason. The run judges each decision by itself all the same.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError

from holdfast.config.page_links import path_of
from holdfast.core.authority.claims import claim_rows
from holdfast.core.authority.previews import CallPreview, cut_words, preview_heading, preview_rows
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.run.views.web_ui import HARMLESS
from holdfast.core.tools.foreign_waits import ServerQuestion
from holdfast.gateway.page.views.signing import signable
from holdfast.gateway.page.views.text import Block, Piece, When, block, blocks, editable, line, sentence, when

JSON = Mapping[str, Any]

LABELS: Mapping[DecisionKind, tuple[str, str]] = {
    "approve": ("Approve", "The call runs, exactly as shown."),
    "deny": ("Deny", "The call does not run. The agent reads the reason."),
    "respond": ("Answer in its place", "The call does not run. The agent reads the answer as its result."),
    "happened": ("It happened", "Record the result, and continue."),
    "absent": ("It did not happen", "The call runs now."),
    "undo": ("Undo it", "The tool undoes what it may have done."),
    "abandon": ("Leave it unknown", "The agent reads that the outcome is unknown."),
}
"""Decision → its button, and what follows."""

QUESTION_LABELS: Mapping[DecisionKind, tuple[str, str]] = {
    "respond": ("Answer", "The server gets this answer, and the call continues."),
    "approve": ("I have visited it", "The server reads that, and the call continues."),
    "deny": ("Decline", "The server gets no answer."),
}
"""The same for the question of a tool's server."""

QUESTIONS = {
    "approval": "May this run?",
    "reconcile": "Did this happen?",
    "question": "What do you answer its server?",
}
"""Kind of a request → its heading."""

URGENT = timedelta(hours=1)
"""Requests that expire within this time come first."""


class Person(NamedTuple):
    """The person who looks at the page."""

    name: str
    may_decide: bool
    """Their token has the scope `decide`."""
    gateway_key: str = ""
    """The public key with which this gateway vouches for people; empty for none."""


class Choice(NamedTuple):
    """A decision, as a button."""

    decision: DecisionKind
    label: str
    follows: str
    refused: str
    """Why this person cannot make it here; empty if they can."""
    needs_key: bool = False
    """Only a signature of the person is missing, so a key in the browser makes it possible."""


class Call(NamedTuple):
    """An open request."""

    thread: str
    request: str
    digest: str
    path: str
    run_path: str
    kind: str
    tool: str
    question: str
    consequence: tuple[Piece, ...]
    """In the words of the tool's author; empty if the tool has no sentence."""
    arguments: tuple[Block, ...]
    context: tuple[Block, ...]
    editable: str
    heading: str
    """The line above the preview."""
    blank: str
    """Of a question with several fields, an answer to fill in; else empty."""
    claim: tuple[str, ...]
    preview: tuple[tuple[str, str], ...]
    """Rows, each with `+`, `-` or a space before it."""
    preview_cut: str
    """How much of the preview is missing, and how to read it; empty if it is complete."""
    why: str
    rule: str
    edited_by: str
    above: str
    """The threads of the runs above a sub-agent's."""
    deciders: str
    votes: tuple[str, ...]
    quorum: str
    policies: tuple[str, ...]
    asked: When | None
    deadline: When | None
    on_expiry: str
    settles: When | None
    escalates: When | None
    signed: bool
    signable: str
    """What the browser signs (`holdfast.gateway.page.views.signing`)."""
    choices: tuple[Choice, ...]

    def choice(self, decision: str) -> Choice | None:
        """Return a decision, if the request accepts it."""
        return next((each for each in self.choices if each.decision == decision), None)


def call_view(request: JSON, person: Person, now: datetime) -> Call:
    """Return an open request for display.

    Args:
        request: As `pending` presents it, with its `thread`.
        person: Who looks at it.
        now: The time.
    """
    thread, id = str(request["thread"]), str(request["request"])
    preview = CallPreview(**request["preview"]) if request.get("preview") else None
    context = request.get("context")
    may = request.get("may") or {}
    return Call(
        thread=line(thread, 300),
        request=line(id),
        digest=str(request["digest"]),
        path=path_of("requests", thread, id),
        run_path=path_of("runs", thread),
        kind=str(request["kind"]),
        tool=line(request["tool"], 100),
        question=QUESTIONS.get(str(request["kind"]), QUESTIONS["approval"]),
        consequence=sentence(str(request.get("consequence") or "")),
        arguments=blocks(request["arguments"]),
        context=() if context is None else tuple(block(name, value) for name, value in context.items()),
        editable=editable(request["arguments"]) if _is_editable(request) else "",
        heading=preview_heading(str(request["kind"])),
        blank=_blank_answer(request.get("question")),
        claim=claim_rows(str(request.get("claim") or ""), columns=90),
        preview=tuple((_sign(row), row) for row in preview_rows(preview, columns=110)) if preview else (),
        preview_cut=line(cut_words(preview, thread), 400) if preview else "",
        why=line(request["why"], 1_000),
        rule=line(request.get("rule") or "", 400),
        edited_by=line(request.get("edited_by") or ""),
        above=line(" > ".join(map(str, (request.get("path") or [])[:-1])), 400),
        deciders=_deciders(may.get("decide"), request),
        votes=tuple(_vote(each) for each in request.get("votes") or ()),
        quorum=_quorum(request),
        policies=tuple(_requirement(each) for each in request.get("requirements") or ()),
        asked=when(request.get("asked_at"), now),
        deadline=when(request.get("expires_at"), now),
        on_expiry="approved" if request.get("on_expiry") == "approve" else "denied",
        settles=when(request.get("settles_at"), now),
        escalates=when(request.get("escalate_at"), now),
        signed=bool(may.get("signed")),
        signable=signable(request, person.name),
        choices=tuple(
            _choice(each, request, preview, person) for each in request.get("answers") or () if each in LABELS
        ),
    )


def urgency(request: JSON, now: datetime) -> tuple[int, str]:
    """Return the key to sort requests by: those that expire soon, the first to expire first; then the oldest."""
    expires = str(request.get("expires_at") or "")
    soon = (now + URGENT).isoformat()
    urgent = bool(expires) and expires <= soon
    return (0, expires) if urgent else (1, str(request.get("asked_at") or ""))


def is_for(request: JSON, name: str) -> bool:
    """Whether a person may make at least one decision on a request, as far as its run says."""
    may = request.get("may") or {}
    named = [may.get("decide"), may.get("deny")]
    return any(each is None or name in each for each in named)


def _choice(decision: DecisionKind, request: JSON, preview: CallPreview | None, person: Person) -> Choice:
    """Return a decision as a button, with the reason if the person cannot make it."""
    asks = request["kind"] == "question"
    label, follows = (QUESTION_LABELS.get(decision) if asks else None) or LABELS[decision]
    refused = _refused(decision, request, preview, person)
    unsigned = "" if refused else _unsigned(decision, request, person)
    return Choice(decision, label, follows, refused or unsigned, needs_key=bool(unsigned))


def _refused(decision: DecisionKind, request: JSON, preview: CallPreview | None, person: Person) -> str:
    """Return why a person cannot make a decision here, signed or not; empty if they can."""
    may = request.get("may") or {}
    if not person.may_decide:
        return "Your token does not have the scope decide."
    entitled = may.get("deny" if decision == "deny" else "decide")
    if entitled is not None and person.name not in entitled:
        return f"{_deciders(entitled, request)} can do this, and you are signed in as {line(person.name)}."
    if preview and not preview.complete and decision not in HARMLESS:
        return "Its preview is cut. Read all of it first, and decide in a terminal."
    return ""


def _unsigned(decision: DecisionKind, request: JSON, person: Person) -> str:
    """Return why a decision without the person's own signature does not count; empty if it does."""
    may = request.get("may") or {}
    if not may.get("signed") or person.gateway_key in may.get("gateways", ()):
        return ""
    command = f"holdfast {_VERBS.get(decision, 'reconcile')} {request['thread']} {request['request']}"
    return (
        f"The policy requires your signature: make a key on the page Your key, or sign in a terminal: {line(command)}"
    )


_VERBS: Mapping[str, str] = {"approve": "approve", "deny": "deny", "respond": "respond"}


def _is_editable(request: JSON) -> bool:
    """Whether a person can approve the call with other arguments."""
    return request["kind"] == "approval" and isinstance(request["arguments"], dict)


def _blank_answer(question: Any) -> str:
    """Return the JSON of an answer with every field of a question, to be filled in; empty for a single field."""
    try:
        parts = ServerQuestion.model_validate(question).parts if question else ()
    except ValidationError:
        return ""
    if not parts:
        return ""
    blanks: dict[str, Any] = {part.key: True if part.url else _blank_form(part.form) for part in parts}
    answer = next(iter(blanks.values())) if len(blanks) == 1 else blanks
    single = isinstance(answer, dict) and len(parts) == 1 and len(answer) < 2
    return "" if single or not isinstance(answer, dict) else editable(answer)


def _blank_form(form: JSON) -> dict[str, None]:
    fields = form.get("properties")
    return dict.fromkeys(sorted(map(str, fields))) if isinstance(fields, dict) else {}


def _deciders(names: Sequence[str] | None, request: JSON) -> str:
    if names is None:
        who = request.get("who") or ()
        return line(", ".join(map(str, who)), 300) if who and not request.get("may") else "anybody"
    return line(", ".join(names), 300) or "nobody"


def _vote(vote: JSON) -> str:
    right = f", for {vote['for']}" if vote.get("for") else ""
    proof = vote.get("proof") or "claimed"
    return line(f"{vote.get('by')} ({proof}){right}: {vote.get('decision')}", 300)


def _quorum(request: JSON) -> str:
    needed, votes = int(request.get("quorum") or 1), len(request.get("votes") or ())
    return f"{votes} of {needed} people have approved" if needed > 1 else ""


def _requirement(each: JSON) -> str:
    who = ", ".join(map(str, each.get("who") or ())) or "its approvers"
    return line(f"{each.get('rule')}: {len(each.get('votes') or ())} of {each.get('quorum')} of {who}", 400)


def _sign(row: str) -> str:
    return row[0] if row[:1] in ("+", "-") else " "
