"""What receivers are told, in their formats."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.statements import parsed
from holdfast.run.contracts import Notice
from holdfast.run.details import HARMLESS
from holdfast.runtime.config.webhooks import Receiver

JSON = dict[str, Any]

ARGUMENT_CHARS = 1_500
"""Of a tool call's arguments in a message for people."""
TEXT_CHARS = 1_500
BLOCK_CHARS = 2_900
"""Slack takes 3,000 characters a block."""
FENCE = "```"
BUTTON_CHARS = 2_000
"""Slack takes as much as the value of a button."""

HEADLINES = {
    "request_opened": "An agent asks",
    "request_reminded": "An agent still asks",
    "request_escalated": "An agent asks you now, too",
    "request_expired": "Nobody has decided in time",
    "run_blocked": "A run is blocked",
    "run_finished": "A run has ended",
}
OPEN = ("request_opened", "request_reminded", "request_escalated")
"""After these, somebody is to decide."""


@dataclass(frozen=True)
class Links:
    """Where to look, and where to decide."""

    ui: str | None = None
    """Temporal's Web UI."""
    gateway: str | None = None
    """The gateway, as others reach it."""

    def run(self, namespace: str, thread: str) -> str | None:
        """The thread's page in the Web UI."""
        if self.ui is None:
            return None
        return f"{self.ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{quote(thread, safe='')}"

    def decisions(self, thread: str) -> str:
        """Where a decision is sent to."""
        return f"{(self.gateway or '').rstrip('/')}/threads/{quote(thread, safe='')}/decisions"


def encode_notice(notice: Notice, receiver: Receiver, *, thread: str, links: Links, namespace: str) -> bytes:
    """The body that a receiver is sent.

    Args:
        notice: What happened.
        receiver: Who is told.
        thread: Where.
        links: Where to look and to decide.
        namespace: Temporal's.
    """
    write: Callable[..., JSON] = _message if receiver.format == "slack" else _plain
    told = write(notice, thread=thread, links=links, ui=links.run(namespace, thread), buttons=receiver.buttons)
    return json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode()


def _plain(notice: Notice, *, thread: str, links: Links, ui: str | None, **_: Any) -> JSON:
    told: JSON = {
        "id": f"{thread}:{notice.position}",
        "occasion": notice.occasion,
        "thread": thread,
        "position": notice.position,
        "agent": notice.agent,
        "status": notice.status,
        "text": notice.text,
        "ui": ui,
        "request": notice.request.view() if notice.request else None,
    }
    if notice.request and notice.occasion in OPEN:
        told["answer"] = {"cli": _commands(thread, notice.request), "http": _http(thread, notice.request, links)}
    return told


def _http(thread: str, request: ApprovalRequest, links: Links, decision: str | None = None) -> JSON:
    body = {"decision": decision or request.answers[0], "request": request.id, "digest": request.digest}
    return {"method": "POST", "url": links.decisions(thread), "body": body}


def _commands(thread: str, request: ApprovalRequest, *, seen: bool = True) -> list[str]:
    where = f"{shlex.quote(thread)} {shlex.quote(request.id)}"
    look = [] if seen else [f"python starter.py pending {shlex.quote(thread)}"]
    if request.kind == "approval":
        return [
            *look,
            *(f"python starter.py {verb} {where}" for verb in ("approve", "deny") if seen or verb in HARMLESS),
        ]
    answers = (answer for answer in request.answers if seen or answer in HARMLESS)
    return [*look, *(f"python starter.py reconcile {where} --{answer}" for answer in answers)]


def _message(notice: Notice, *, thread: str, links: Links, ui: str | None, buttons: bool) -> JSON:
    headline = HEADLINES[notice.occasion]
    what = f"{headline}: {notice.request.tool}" if notice.request else f"{headline}: {notice.status}"
    where = f"*Thread* `{_escaped(thread)}`" + (f"   *Agent* `{_escaped(notice.agent)}`" if notice.agent else "")
    blocks = [_header(what), _section(where)]
    if request := notice.request:
        asked, seen = _question(request)
        blocks += asked
        if notice.occasion in OPEN:
            blocks.append(_section(_how(thread, request, links, seen=seen)))
            if buttons and request.kind == "approval":
                blocks += _buttons(thread, request, seen=seen)
    if notice.text:
        blocks.append(_section(_code(notice.text, TEXT_CHARS)[0]))
    if ui:
        blocks.append(_section(f"<{ui}|Temporal's Web UI>"))
    return {"text": _escaped(f"{what} ({thread})"), "blocks": blocks}


def _question(request: ApprovalRequest) -> tuple[list[JSON], bool]:
    """The request, and whether all of its arguments are shown as they are."""
    arguments = parsed(request.arguments)
    # JSON has another way to write a backtick: the same value, and no end of the block of code.
    as_json = json.dumps(arguments, ensure_ascii=False, indent=1).replace(FENCE, r"\u0060" * 3)
    shown = arguments if isinstance(arguments, str) else as_json
    who = ", ".join(request.who) or "any approver"
    needed = f" ({request.terms.quorum} of them)" if request.terms.quorum > 1 else ""
    until = f"{request.expires_at:%Y-%m-%d %H:%M} UTC" if request.expires_at else "never"
    code, seen = _code(shown, ARGUMENT_CHARS)
    cut = [_section(f"*Not all is shown.* Look at it before you approve. Digest of all: `{request.digest}`")]
    return [
        _section(f"*Tool* `{_escaped(request.tool)}`   *Request* `{_escaped(request.id)}`"),
        _section(code),
        *([] if seen else cut),
        _section(
            f"*Why* {_escaped(_short(request.why))}\n*Who decides* {_escaped(_short(who))}{needed}\n*Expires* {until}"
        ),
    ], seen


def _how(thread: str, request: ApprovalRequest, links: Links, *, seen: bool) -> str:
    harmless = next(answer for answer in request.answers if answer in HARMLESS)
    http = _http(thread, request, links, None if seen else harmless)
    lines = [*_commands(thread, request, seen=seen), f"POST {http['url']}", json.dumps(http["body"])]
    return "*To answer*\n" + _code("\n".join(lines), BLOCK_CHARS - 100)[0]


def _buttons(thread: str, request: ApprovalRequest, *, seen: bool) -> list[JSON]:
    elements: list[JSON] = []
    for decision, words, style in (("approve", "Approve", "primary"), ("deny", "Deny", "danger")):
        if not seen and decision not in HARMLESS:
            continue  # nobody approves by a button what the message did not show
        said = {"thread": thread, "request": request.id, "digest": request.digest, "decision": decision}
        elements.append(
            {
                "type": "button",
                "action_id": f"holdfast_{decision}",
                "text": {"type": "plain_text", "text": words},
                "style": style,
                "value": json.dumps(said, separators=(",", ":")),
            }
        )
    fits = all(len(element["value"]) <= BUTTON_CHARS for element in elements)
    return [{"type": "actions", "elements": elements}] if fits else []


def _header(text: str) -> JSON:
    return {"type": "header", "text": {"type": "plain_text", "text": text[:150]}}


def _section(text: str) -> JSON:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:BLOCK_CHARS]}}


def _short(text: str, limit: int = 500) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _code(text: str, limit: int) -> tuple[str, bool]:
    """A block of code, and whether it shows all of the text as it is."""
    # A fence within would end the block, and the rest would be read as markup.
    shown = text.replace(FENCE, "'''")[:limit]
    while len(_escaped(shown)) > limit:
        shown = shown[: len(shown) * 3 // 4]
    more = "" if len(shown) == len(text) else f"… ({len(text):,} characters)"
    return f"{FENCE}{_escaped(shown)}{more}{FENCE}", shown == text


def _escaped(text: str) -> str:
    """Text that Slack shows as it is: without it, arguments could mention people or make links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
