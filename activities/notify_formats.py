"""Bodies of webhook notices: plain JSON, and Slack messages. `notify` sends them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast.config.page_links import page_link
from holdfast.config.programs import CLI
from holdfast.config.webhooks import Receiver
from holdfast.core.authority.approvals import SHORT_DIGEST, ApprovalRequest
from holdfast.core.authority.claims import CLAIMED, MARK, claim_rows
from holdfast.core.authority.previews import preview_heading, preview_rows
from holdfast.core.authority.summaries import describe_terms
from holdfast.core.base.canonical import parsed
from holdfast.core.base.readable_json import CONTEXT_HEADING
from holdfast.core.base.text import one_line, visible
from holdfast.core.run.contracts.record import FEEDBACK_INPUT, Notice
from holdfast.core.run.views.web_ui import HARMLESS

JSON = dict[str, Any]

ARGUMENT_CHARS = 1_500
"""The most characters of a tool call's arguments in a Slack message."""
TEXT_CHARS = 1_500
BLOCK_CHARS = 2_900
"""Slack allows 3,000 characters per block."""
PREVIEW_CHARS = 2_700
"""The most characters of one block of a preview."""
PREVIEW_BLOCKS = 6
"""The most blocks of a preview: a Slack message has at most 50 in all."""
FENCE = "```"
FEEDBACK_CHARS = 2_000
BUTTON_CHARS = 2_000
"""Slack's limit for the value of a button."""

HEADLINES = {
    "request_opened": "Decision required",
    "request_reminded": "Decision still required",
    "request_escalated": "Decision escalated to you",
    "request_expired": "No decision in time",
    "run_blocked": "A run is blocked",
    "run_finished": "A run has ended",
    "budget_low": "A budget is almost used up",
    "budget_spent": "A budget is used up",
    "message_awaited": "An agent has answered",
}
_ENDS = ("completed", "failed", "cancelled", "moved", "blocked")
"""Statuses that a Slack message names."""
OPEN = ("request_opened", "request_reminded", "request_escalated")
"""Occasions on which a request waits for a decision."""


@dataclass(frozen=True)
class Links:
    """Addresses for inspecting a run and sending decisions."""

    ui: str | None = None
    """Base URL of Temporal's Web UI."""
    gateway: str | None = None
    """Base URL of the gateway, as reached from outside."""

    def run(self, namespace: str, thread: str) -> str | None:
        """Return the URL of the thread's page in the Web UI; None without a Web UI."""
        if self.ui is None:
            return None
        return f"{self.ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{quote(thread, safe='')}"

    def page(self, thread: str, notice: Notice) -> str | None:
        """Return the page to decide the notice's request on, or that of the run; None without a page."""
        request = notice.request.id if notice.request and notice.occasion in OPEN else ""
        return page_link(self.gateway, thread, request)

    def decisions(self, thread: str) -> str:
        """Return the gateway's URL for decisions."""
        return f"{self._thread(thread)}/decisions"

    def messages(self, thread: str) -> str:
        """Return the gateway's URL for messages."""
        return f"{self._thread(thread)}/messages"

    def _thread(self, thread: str) -> str:
        return f"{(self.gateway or '').rstrip('/')}/threads/{quote(thread, safe='')}"


def encode_notice(notice: Notice, receiver: Receiver, *, thread: str, links: Links, namespace: str) -> bytes:
    """Encode a notice as the body for a receiver.

    Args:
        notice: The notice.
        receiver: The receiver, which determines the format.
        thread: The thread's id.
        links: Addresses for inspecting the run and sending decisions.
        namespace: Temporal's namespace.
    """
    encode: Callable[..., JSON] = _slack if receiver.format == "slack" else _plain
    body = encode(notice, thread=thread, links=links, ui=links.run(namespace, thread), buttons=receiver.buttons)
    return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()


def _plain(notice: Notice, *, thread: str, links: Links, ui: str | None, **_: Any) -> JSON:
    body: JSON = {
        "id": f"{thread}:{notice.position}",
        "occasion": notice.occasion,
        "thread": thread,
        "position": notice.position,
        "agent": notice.agent,
        "status": notice.status,
        "text": notice.text,
        "ui": ui,
        "page": links.page(thread, notice),
        "request": {**notice.request.view(), "claim": notice.claim} if notice.request else None,
    }
    if notice.request and notice.occasion in OPEN:
        body["answer"] = {"cli": _commands(thread, notice.request), "http": _http(thread, notice.request, links)}
    if notice.occasion == "message_awaited":
        body["reply"] = {"cli": [CLI.command("say", thread, "MESSAGE")], "http": _reply(thread, links)}
    return body


def _reply(thread: str, links: Links) -> JSON:
    """The request that sends the agent another message."""
    return {"method": "POST", "url": links.messages(thread), "body": {"message": "MESSAGE"}}


def _http(thread: str, request: ApprovalRequest, links: Links, decision: str | None = None) -> JSON:
    body = {"decision": decision or request.answers[0], "request": request.id, "digest": request.digest}
    return {"method": "POST", "url": links.decisions(thread), "body": body}


def _commands(thread: str, request: ApprovalRequest, *, complete: bool = True) -> list[str]:
    """Return the commands that answer a request; only harmless ones if the message shows it incompletely."""
    show = [] if complete else [CLI.command("pending", thread)]
    digest = ("--digest", request.digest[:SHORT_DIGEST])
    if request.kind == "question":
        fitting = [answer for answer in request.answers if complete or answer == "deny"]
        texts = {answer: ("ANSWER",) if answer == "respond" else () for answer in fitting}
        return [*show, *(CLI.command(answer, thread, request.id, *texts[answer], *digest) for answer in fitting)]
    if request.kind == "approval":
        return [
            *show,
            *(
                CLI.command(verb, thread, request.id, *digest)
                for verb in ("approve", "deny")
                if complete or verb in HARMLESS
            ),
        ]
    answers = (answer for answer in request.answers if complete or answer in HARMLESS)
    return [*show, *(CLI.command("reconcile", thread, request.id, f"--{answer}", *digest) for answer in answers)]


def _slack(notice: Notice, *, thread: str, links: Links, ui: str | None, buttons: bool) -> JSON:
    headline = HEADLINES[notice.occasion]
    about = notice.request.tool if notice.request else notice.status if notice.status in _ENDS else ""
    title = f"{headline}: {about}" if about else headline
    origin = f"*Thread* {_inline(thread)}" + (f"   *Agent* {_inline(notice.agent)}" if notice.agent else "")
    blocks, page = [_header(title), _section(origin)], links.page(thread, notice)
    if request := notice.request:
        request_blocks, complete = _request(request)
        blocks += [*request_blocks, *_claim(notice.claim)]
        if notice.occasion in OPEN:
            blocks += [_section(f"*<{page}|Decide on the page>*")] if page else []
            blocks.append(_section(_instructions(thread, request, links, complete=complete)))
            if buttons and request.kind == "approval":
                with_buttons = _buttons(thread, request, complete=complete)
                blocks += [*(_feedback() if with_buttons and notice.feedback else []), *with_buttons]
    if notice.text:
        blocks.append(_section(_code(notice.text, TEXT_CHARS)[0]))
    if page and notice.occasion not in OPEN:
        blocks.append(_section(f"<{page}|The run on the page>"))
    if ui:
        blocks.append(_section(f"<{ui}|Temporal's Web UI>"))
    return {"text": _escaped(f"{title} ({thread})"), "blocks": blocks}


def _request(request: ApprovalRequest) -> tuple[list[JSON], bool]:
    """Return the blocks of a request, and whether they show all of its arguments verbatim."""
    arguments = parsed(request.arguments)
    # JSON can escape a backtick: the same value, without ending the code block.
    as_json = json.dumps(arguments, ensure_ascii=False, indent=1).replace(FENCE, r"\u0060" * 3)
    text = arguments if isinstance(arguments, str) else as_json
    if request.context is not None:
        context = json.dumps(request.context, ensure_ascii=False, indent=1).replace(FENCE, r"\u0060" * 3)
        text = f"{text}\n{CONTEXT_HEADING}\n{context}"
    approvers = ", ".join(request.who) or "any approver"
    reason = _short(one_line(request.why, 2_000))
    needed = f" ({request.quorum} of them)" if request.quorum > 1 else ""
    if request.requirements:
        approvers, needed = describe_terms(request), ""
    until = f"{request.expires_at:%Y-%m-%d %H:%M} UTC" if request.expires_at else "never"
    code, complete = _code(text, ARGUMENT_CHARS)
    cut = [
        _section(f"*Not all arguments are shown.* Read them all before you approve. Full digest: `{request.digest}`")
    ]
    preview, shown = _preview(request)
    return [
        _section(f"*Tool* {_inline(request.tool)}   *Request* {_inline(request.id)}"),
        _section(code),
        *([] if complete else cut),
        *preview,
        _section(f"*Why* {_escaped(reason)}\n*Who decides* {_escaped(_short(approvers))}{needed}\n*Expires* {until}"),
    ], complete and shown


def _preview(request: ApprovalRequest) -> tuple[list[JSON], bool]:
    """Return the blocks with the preview of the call, and whether they show all of it."""
    if request.preview is None:
        return [], True
    texts, text = [], ""
    for row in preview_rows(request.preview):
        line = f"{MARK}{row}\n".replace(FENCE, r"\u0060" * 3)  # as in arguments: it would end the block
        if len(_escaped(text + line)) > PREVIEW_CHARS:
            texts.append(text)
            text = ""
        text += line
    texts.append(text)
    shown = len(texts) <= PREVIEW_BLOCKS and request.preview.complete
    cut = _section("*Not all of it is shown.* Read it all before you approve: the first command below shows how.")
    blocks = [_section(_code(text.rstrip("\n"), BLOCK_CHARS)[0]) for text in texts[:PREVIEW_BLOCKS]]
    return [_section(f"*{preview_heading(request.kind)}*"), *blocks, *([] if shown else [cut])], shown


def _claim(claim: str) -> list[JSON]:
    """Return the blocks with what the agent said when it made the call: in a code block, which it cannot end."""
    rows = claim_rows(claim)
    return [_section(f"*{CLAIMED}*"), _section(_code("\n".join(rows), TEXT_CHARS)[0])] if rows else []


def _feedback() -> list[JSON]:
    """Return the text field whose text goes to the agent with the button: with an approval, or as a denial's reason."""
    field = {"type": "plain_text_input", "action_id": FEEDBACK_INPUT, "multiline": True, "max_length": FEEDBACK_CHARS}
    label = {"type": "plain_text", "text": "Say to the agent, with your decision"}
    return [{"type": "input", "block_id": FEEDBACK_INPUT, "optional": True, "label": label, "element": field}]


def _instructions(thread: str, request: ApprovalRequest, links: Links, *, complete: bool) -> str:
    harmless = next(answer for answer in request.answers if answer in HARMLESS)
    http = _http(thread, request, links, None if complete else harmless)
    lines = [*_commands(thread, request, complete=complete), f"POST {http['url']}", json.dumps(http["body"])]
    return "*To decide*\n" + _code("\n".join(lines), BLOCK_CHARS - 100)[0]


def _buttons(thread: str, request: ApprovalRequest, *, complete: bool) -> list[JSON]:
    elements: list[JSON] = []
    for decision, label, style in (("approve", "Approve", "primary"), ("deny", "Deny", "danger")):
        if not complete and decision not in HARMLESS:
            continue  # no approve button for arguments that the message shows incompletely
        value = {"thread": thread, "request": request.id, "digest": request.digest, "decision": decision}
        elements.append(
            {
                "type": "button",
                "action_id": f"holdfast_{decision}",
                "text": {"type": "plain_text", "text": label},
                "style": style,
                "value": json.dumps(value, separators=(",", ":")),
            }
        )
    fits = all(len(element["value"]) <= BUTTON_CHARS for element in elements)
    return [{"type": "actions", "elements": elements}] if fits else []


def _header(text: str) -> JSON:
    return {"type": "header", "text": {"type": "plain_text", "text": visible(text)[:150]}}


def _section(text: str) -> JSON:
    # Verbatim: Slack turns no address in a quoted text into a link; our own links are marked up.
    return {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": text[:BLOCK_CHARS]}}


def _short(text: str, limit: int = 500) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _code(text: str, limit: int) -> tuple[str, bool]:
    """Return a code block, and whether it shows all of the text verbatim."""
    # A fence within the text would end the block, and Slack would read the rest as markup.
    excerpt = text.replace(FENCE, "'''")[:limit]
    while len(_escaped(excerpt)) > limit:
        excerpt = excerpt[: len(excerpt) * 3 // 4]
    more = "" if len(excerpt) == len(text) else f"… ({len(text):,} characters)"
    return f"{FENCE}{_escaped(excerpt)}{more}{FENCE}", excerpt == text


def _escaped(text: str) -> str:
    """Escape text for Slack: otherwise arguments could mention people, make links or reorder a line."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _inline(text: str) -> str:
    """Return the text as inline code, which it cannot end."""
    return f"`{_escaped(text).replace('`', chr(39))}`"
