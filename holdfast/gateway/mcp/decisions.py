"""Open requests as elicitations, and their responses as decisions.

1. What a person sees in the form is what runs: the whole call, with nothing that could control a display. If a call is
   too long to be shown whole, the form does not offer to approve it.
2. The key of a request is its number and its digest, so a response can only be to the call that was shown.
3. Where the approvers must sign by themselves, the elicitation leads to a page; a response decides nothing.
4. A declined elicitation of an approval is a denial, because that runs nothing. A dismissed one decides nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult
from pydantic import ValidationError

from holdfast.api.request_views import PendingRequest
from holdfast.api.waiting import Waited
from holdfast.config.programs import CLI
from holdfast.core.authority.claims import CLAIMED, MARK, claim_rows
from holdfast.core.authority.previews import cut_words, preview_rows
from holdfast.core.base.text import one_line, visible, visible_json
from holdfast.gateway.bodies import DecisionBody
from holdfast.gateway.http.problems import HTTPProblem, validation_text

SHOWN_CHARS = 20_000
"""Maximum length of arguments in a form."""

_RUNS_THE_CALL = ("approve", "absent", "undo")

_MEANINGS = {
    "approve": "run this call",
    "deny": "do not run it",
    "respond": "do not run it; the text is its result",
    "happened": "its effect happened; the text is its result",
    "absent": "its effect did not happen, so run it again",
    "undo": "undo its effect",
    "abandon": "leave the outcome unknown, and continue",
}
_WITH_TEXT = ("respond", "happened")


@dataclass(frozen=True)
class OpenRequest:
    """An open request of a run or of a run below it."""

    thread: str
    """The thread that receives the decision."""
    agent: str | None
    request: PendingRequest

    def key(self, root: str) -> str:
        """The request's key in a task: unique for the whole life of the task.

        Args:
            root: The task's thread.
        """
        below = self.thread.removeprefix(root)
        return f"{below.removeprefix('.')}:" * bool(below) + f"{self.request.request}-{self.request.digest}"

    @property
    def arguments(self) -> str:
        """The call's arguments, as people see them."""
        given = self.request.arguments
        return (
            visible_json(json.dumps(given, indent=2, ensure_ascii=False)) if isinstance(given, dict) else visible(given)
        )

    @property
    def answers(self) -> tuple[str, ...]:
        """The decisions that a form offers."""
        shown = len(self.arguments) <= SHOWN_CHARS
        return tuple(each for each in self.request.answers if shown or each not in _RUNS_THE_CALL)


def open_requests(waited: Waited, *, by: str) -> Iterator[OpenRequest]:
    """Yield the open requests of a tree, without those that a person has voted on.

    Args:
        waited: The run, and the runs of its tree that need a person.
        by: The person.
    """
    own = waited.state
    found = [OpenRequest(own.thread, own.agent, each) for each in own.pending]
    below = (need for need in waited.attention if need.thread != own.thread)
    found += [OpenRequest(need.thread, need.agent, each) for need in below for each in need.pending]
    yield from (each for each in found if by not in [vote.by for vote in each.request.votes])


def form(asked: OpenRequest) -> ElicitRequest:
    """Return the elicitation with which a person decides a request."""
    answers = asked.answers
    meanings = "; ".join(f"{each}: {_MEANINGS[each]}" for each in answers)
    fields: dict[str, Any] = {
        "decision": {"type": "string", "enum": list(answers), "title": "Decision", "description": meanings},
        "reason": {"type": "string", "maxLength": 2_000, "title": "Reason", "description": "For the record."},
    }
    if any(each in _WITH_TEXT for each in answers):
        fields["result"] = {
            "type": "string",
            "maxLength": 8_000,
            "title": "Result of the call",
            "description": "The text that the agent reads, for respond and happened.",
        }
    schema = {"type": "object", "properties": fields, "required": ["decision"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=shown(asked), requested_schema=schema))


def link(asked: OpenRequest, url: str) -> ElicitRequest:
    """Return the elicitation that leads a person to where the decision can be signed."""
    message = f"{shown(asked)}\n\nThe policy requires your own signature. Decide it there, or with: {_command(asked)}"
    return ElicitRequest(params=ElicitRequestURLParams(message=message, url=url))


def shown(asked: OpenRequest) -> str:
    """Return a request as a text for people."""
    request = asked.request
    question = "May this call run?" if request.kind == "approval" else "Did the effect of this call happen?"
    text = asked.arguments
    if len(text) > SHOWN_CHARS:
        text = (
            f"{text[:SHOWN_CHARS]}\nCut: this is not the whole call. Read it, and approve it, with: {_command(asked)}"
        )
    parts = [
        f"The agent {visible(asked.agent or '?')} asks about {visible(request.tool)}. {question}",
        f"Arguments: {text}",
        f"Why you are asked: {visible(one_line(request.why, 1_000))}",
    ]
    if request.context is not None:
        parts.append(f"Context: {visible_json(json.dumps(request.context, ensure_ascii=False))}")
    if request.edited_by:
        parts.append(f"The arguments were changed by {visible(request.edited_by)}.")
    if preview := request.preview:
        rows = "\n".join(f"{MARK}{row}" for row in preview_rows(preview))
        parts.append("\n".join(filter(None, [f"What the call would do:\n{rows}", cut_words(preview, asked.thread)])))
    if claimed := claim_rows(request.claim):
        parts.append("\n".join([CLAIMED, *(f"{MARK}{row}" for row in claimed)]))
    return "\n\n".join(parts)


def decision_of(asked: OpenRequest, response: Mapping[str, Any]) -> DecisionBody | None:
    """Return the decision that the response to a form is; None if it decides nothing.

    Raises:
        HTTPProblem: 422: it is malformed, or not among the offered decisions.
    """
    try:
        given = ElicitResult.model_validate(response)
    except ValidationError as error:
        raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None
    bound = {"request": asked.request.request, "digest": asked.request.digest}
    if given.action == "decline" and "deny" in asked.answers:
        return DecisionBody.model_validate({"decision": "deny", **bound})
    if given.action != "accept":
        return None
    content = {name: value for name, value in (given.content or {}).items() if value not in (None, "")}
    if unknown := sorted(content.keys() - {"decision", "reason", "result"}):
        raise HTTPProblem(422, f"the form has no field {', '.join(unknown)[:100]!r}")
    if content.get("decision") not in asked.answers:
        raise HTTPProblem(422, f"decision: choose one of {', '.join(asked.answers)}")
    if content["decision"] not in _WITH_TEXT:
        content.pop("result", None)
    try:
        return DecisionBody.model_validate({**content, **bound})
    except ValidationError as error:
        raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None


def _command(asked: OpenRequest) -> str:
    return f"`{CLI.command('approve', asked.thread, asked.request.request)}`"
