"""A run in Temporal's Web UI: one-line summaries, and the current details in Markdown.

1. The page is complete up to a fixed size. A cut part states how much is missing and which command shows all of it, and
   then the page offers no decision that lets the call run.
2. The JSON to send stands above long arguments, and names the digest of the request on the page: it cannot decide on
   any other.
3. Text of people, models and tools is plain: it cannot form a heading, link, image or code block.
4. Its only links lead to the page of the gateway that the worker named (`holdfast.core.base.page_paths`).

Temporal keeps no details in history but queries a worker for them: the only limit is that of an answer (2 MB).
"""

import json
from collections.abc import Mapping, Sequence

from holdfast.core.authority.approvals import WORDS, ApprovalRequest
from holdfast.core.authority.claims import CLAIMED, MARK, claim_rows
from holdfast.core.authority.interventions import RefinementKind
from holdfast.core.authority.previews import cut_words, preview_heading, preview_rows
from holdfast.core.authority.statements import DecisionKind, speaker_words
from holdfast.core.authority.summaries import describe_terms
from holdfast.core.base.canonical import parsed
from holdfast.core.base.page_paths import address_of, linkable
from holdfast.core.base.readable_json import readable_call
from holdfast.core.base.text import code, plain, quoted, wrapped
from holdfast.core.budget.account import Account
from holdfast.core.budget.budget import LimitName, amount_text
from holdfast.core.log.events import AgentEvent, DecisionReceived, SignalRejected
from holdfast.core.run.decide.decide import awaited_input
from holdfast.core.run.rules.authority import signatures_required
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.dormancy import Dormancy
from holdfast.core.run.state.features import FEEDBACK, REFINE_TASK
from holdfast.core.run.state.progress import Pause
from holdfast.core.run.state.state import Blocked, RunState
from holdfast.core.run.views.deciders import sentence_of
from holdfast.core.run.views.lifecycle import phase_of
from holdfast.core.run.views.status import awaited, doing, warning_of
from holdfast.core.tools.effects import describe_call
from holdfast.core.tools.triggers import EventTrigger

SHOWN_REQUESTS = 10
"""Maximum number of open requests on the page, in full."""

SHOWN_CONSTRAINTS = 20
"""Maximum number of constraints on the page, the newest."""

SHOWN_CHILDREN = 20
"""Maximum number of sub-agents on the page, the open ones first."""

SHOWN_WAITS = 20
"""Maximum number of waits on the page."""

SHOWN_CHARS = 20_000
"""Maximum characters of a request's arguments. Longer ones are cut, and then the page offers no decision that lets them
run."""

COLUMNS = 40
"""Columns of a code block that fit on a phone. The Web UI cuts longer lines at its edge, without a mark."""

SHORT_CHARS = 600
"""Maximum characters of arguments that stand above the JSON to send; longer ones stand below it."""

SUMMARY_REQUESTS, SUMMARY_CHARS = 3, 180
"""The most requests, and characters, of a wait's summary."""

RESULT_CHARS = 20_000
"""Maximum characters of the result."""

HARMLESS: frozenset[DecisionKind] = frozenset({"deny", "respond", "happened", "abandon"})
"""Decisions that start nothing: a person may take them without having seen all of a call."""

KIND_WORDS: Mapping[RefinementKind, str] = {
    "narrow": "narrowed",
    "rescope": "replaced",
    "correct": "corrected",
}
"""Kind of refinement → its effect on the task, in a word."""

WHO = '```json\n{"by": "your name"}\n```'
"""The payload of a signal that needs only a name."""

REFINEMENT = '```json\n{\n "kind": "narrow",\n "text": "what to do from now on",\n "by": "your name"\n}\n```'
"""The payload of the signal that refines the task."""

WHERE = "**More Actions**, at the top of this page, then **Send a Signal**"
"""The way to the signal form of the Web UI."""

_SIGNALS: dict[DecisionKind, str] = {
    "approve": "approve",
    "deny": "deny",
    "respond": "respond",
    "happened": "reconcile",
    "absent": "reconcile",
    "undo": "reconcile",
    "abandon": "reconcile",
}


def signal_json(request: ApprovalRequest, decision: DecisionKind, *, feedback: bool = False) -> tuple[str, str]:
    """Return the signal's name and the exact JSON that make this decision on the request in its current form.

    Args:
        request: The request.
        decision: The decision.
        feedback: The run reads the feedback of an approval, whose field the JSON then has, empty.
    """
    payload = {"request": request.id, "by": "your name", "reason": "why"}
    if request.kind == "reconcile":
        payload = {"decision": decision, **payload}
    if decision == "respond":
        payload = {**payload, "result": "what the agent is to read"}
    if request.kind == "question" and decision == "respond":
        payload = {**payload, "result": "the fields of the form, as JSON"}
    if decision not in HARMLESS or (request.kind == "question" and decision == "respond"):
        payload = {**payload, "digest": request.digest}
    if decision == "approve" and feedback and request.kind == "approval":
        payload = {**payload, "say": ""}
    return _SIGNALS[decision], json.dumps(payload, indent=1)


def current_details(state: RunState, refused: Sequence[AgentEvent] = ()) -> str:
    """Return the run in Markdown: its current activity, its task, and each open request with the signals to answer it.

    Args:
        state: The run's state.
        refused: The last events that record a rejected signal or update, oldest first.
    """
    agent = state.spec.name if state.spec else "loading…"
    refined = f" · task refined ({len(state.refinements)})" if state.refinements else ""
    # The headline covers other statuses: "dormant" and "terminated" would mislead after an approval request or an end.
    phase = f" · {phase_of(state)}" if state.status == "running" else ""
    position = f"agent `{code(agent)}` · step {state.steps.count}{refined}{phase}"
    lines = [f"**{_headline(state)}** · {position}", "", *_link(state, "This run on the page")]
    lines += budget_details(state.account)
    if state.pause:
        lines += paused_details(state.pause, state.thread, signed=signatures_required(state) or bool(state.pause.proof))
    if state.blocked:
        lines += blocked_details(state.blocked, state.thread if signatures_required(state) else "")
        if state.blocked.cause == BUDGET_SPENT:
            lines += extend_details(state)
    if state.dormancy.waits and not state.outcome:
        lines += dormant_details(state.dormancy)
    if state.places.until and not state.outcome:
        lines += ["", "### Waits for a node", "", *(f"- {plain(each.line, 400)}" for each in state.places.rejected)]
        lines += ["", f"It offers its work again at {state.places.until:%Y-%m-%d %H:%M:%S} UTC.", ""]
    if warning := warning_of(state):
        lines += ["", "### Warning", "", quoted(warning)]
    for request in state.authority.requests[:SHOWN_REQUESTS]:
        lines += [*_request(state, request), ""]
    if (more := len(state.authority.requests) - SHOWN_REQUESTS) > 0:
        lines += [f"… and {more} more requests: `{code(f'holdfast pending {state.thread}')}`", ""]
    if refused:
        lines += ["### Refused", "", *map(_refusal, refused), ""]
    lines += [*_related_runs(state), *_constraints(state)]
    if delayed := state.calls.delayed:
        lines += [
            "### Starts later",
            "",
            *(f"- `{code(describe_call(call.call))}`: {delay_words(call)}" for call in delayed),
            "",
        ]
    if running := [call.call for call in state.running_calls]:
        shown = [code(describe_call(call)) for call in running]
        lines += ["### Running", "", *(f"- `{call}`" for call in shown), ""]
    lines += ["### Task", "", quoted(state.task), *_refinements(state)]
    if state.outcome and state.result:
        title = "### Structured result" if state.structured else "### Result"
        lines += ["", title, "", quoted(state.result, RESULT_CHARS)]
    return "\n".join(lines)


def wait_summary(state: RunState) -> str:
    """Return a line that says what a run waits for, for the timer of that wait in the timeline."""
    shown = [f"{request.tool} (request {request.id})" for request in state.authority.requests[:SUMMARY_REQUESTS]]
    if (more := len(state.authority.requests) - len(shown)) > 0:
        shown.append(f"{more} more")
    calls = f": {', '.join(shown)}" if shown and not (state.pause or state.blocked) else ""
    return plain(f"{awaited(state)}{calls}", SUMMARY_CHARS)


def archive_summary(summary: str, state: RunState) -> str:
    """Return the line for a write of the record in the timeline, from the activity's own. The timer of a wait starts
    when the record is written; until then, as while the database is down, this line says what the run waits for.
    """
    return f"{summary}; the run {wait_summary(state)}" if awaited_input(state, at=state.updated_at) else summary


def _headline(state: RunState) -> str:
    """Return the run's current activity, for the first line."""
    if state.pause:
        return f"Paused by {pause_words(state.pause)}"
    if state.outcome:
        return state.outcome.capitalize()
    words = plain(doing(state))
    return words[:1].upper() + words[1:]


def _request(state: RunState, request: ApprovalRequest) -> list[str]:
    question = WORDS[request.kind]
    arguments = parsed(request.arguments)
    shown = readable_call(arguments, request.context)
    rows = [row for line in shown[:SHOWN_CHARS].split("\n") for row in wrapped(line, COLUMNS)]
    pending = code(f"holdfast pending {state.thread}")
    lines = [f"### Request {request.id}: {question}", "", f"`{code(request.tool)}` ({plain(request.why, 1_000)})", ""]
    lines += _link(state, "Decide on the page", request.id)
    answers = request.answers
    if consequence := sentence_of(state, request):
        lines += [f"It {plain(consequence, 2_000)}", ""]
    if terms := describe_terms(request):
        lines += [plain(terms, 1_000), ""]
    if said := claim_rows(state.calls.claim_about(request.number)):
        lines += [f"**{CLAIMED}**", "", quoted("\n".join(said)), ""]
    block = ["```text", *rows, "```", "", *_preview(state, request)]
    if request.preview and not request.preview.complete:
        answers = tuple(answer for answer in answers if answer in HARMLESS)
    if len(shown) > SHOWN_CHARS:
        answers = tuple(answer for answer in answers if answer in HARMLESS)
        cut = f"**Cut: {SHOWN_CHARS:,} of {len(shown):,} characters.** Digest of all: `{request.digest}`."
        block += [cut, "", f"To let it run, read the rest first: `{pending}`", ""]
    if signatures_required(state):
        words = ", ".join(request.answers)
        return [*lines, *block, f"Only a signed decision counts ({words}): `{pending}` shows the commands."]
    signals = [f"To decide, press {WHERE}. Choose the signal, and paste its JSON with your name.", ""]
    for decision in answers:
        signal, payload = signal_json(request, decision, feedback=state.features >= FEEDBACK)
        signals += [f"To {decision}: `{signal}`", "", f"```json\n{payload}\n```", ""]
    if len(shown) <= SHORT_CHARS:
        return [*lines, *block, *signals]
    extent = f"{len(shown):,} characters, {shown.count(chr(10)) + 1:,} lines"
    below = f"**Its arguments are below ({extent}). Read all of them before you let it run.**"
    return [*lines, below, "", *signals, f"Arguments of request {request.id}:", "", *block]


def _link(state: RunState, words: str, request: str = "") -> list[str]:
    """Return the lines with a link to the page; none if the worker that loaded the agent named no gateway."""
    page = state.page and linkable(state.page)
    return [f"[{words}](<{address_of(page, state.thread, request)}>)", ""] if page else []


def _preview(state: RunState, request: ApprovalRequest) -> list[str]:
    """Return the lines with the preview of a call, in a block that its text cannot end; none without one."""
    if request.preview is None:
        return []
    rows = preview_rows(request.preview, COLUMNS)
    # Like the arguments: a row of backticks would end the block.
    block = ["```text", *(f"{MARK}{row}" for row in rows), "```", ""]
    cut = code(cut_words(request.preview, state.thread))
    return [f"**{preview_heading(request.kind)}**", "", *block, *([f"`{cut}`", ""] if cut else [])]


def _related_runs(state: RunState) -> list[str]:
    """Return the lines about the runs above and about the sub-agents, the open ones first."""
    lines: list[str] = []
    if state.origin.lineage:
        above = " > ".join(f"`{code(each)}`" for each in state.origin.lineage.path)
        lines += [f"A sub-agent of {above}. Decide on its requests here.", ""]
    children = sorted(state.subagents.children, key=lambda child: not child.open)
    if not children:
        return lines
    rows = [f"- `{code(c.thread)}`: agent `{code(c.agent)}`, {c.status or 'open'}" for c in children[:SHOWN_CHILDREN]]
    if (more := len(children) - SHOWN_CHILDREN) > 0:
        rows.append(f"- … and {more} more: `{code(f'holdfast show {state.thread} --tree')}`")
    find = f"HoldfastRoot = '{state.origin.lineage.root if state.origin.lineage else state.thread}'"
    return [*lines, "### Sub-agents", "", *rows, "", f"All of this tree: `{code(find)}`", ""]


def _constraints(state: RunState) -> list[str]:
    """Return the lines about the constraints that tools have stated, and about the signal that removes them."""
    if state.outcome or not state.constraints.kept:
        return []
    shown = state.constraints.kept[-SHOWN_CONSTRAINTS:]
    lines = ["### Cannot be done", "", *(f"- {plain(each.line, 1_000)}" for each in shown), ""]
    if older := len(state.constraints.kept) - len(shown):
        lines += [f"{older:,} older ones: `{code(f'holdfast show {state.thread}')}`", ""]
    if signatures_required(state):
        return [*lines, f"Only a signed lift counts: `{code(f'holdfast lift {state.thread} CONSTRAINT')}`", ""]
    payload = json.dumps({"constraint": shown[-1].number, "by": "your name", "reason": "why"}, indent=1)
    return [*lines, f"To lift one, press {_named('lift')}", "", f"```json\n{payload}\n```", ""]


def _refinements(state: RunState) -> list[str]:
    """Return the lines about refinements of the task, and about the signal that refines it."""
    lines: list[str] = []
    for each in state.refinements:
        by = each.by if each.own else speaker_words(each.by, each.proof)
        about = f"{plain(KIND_WORDS[each.kind])} by {plain(by, 100)}, {each.at:%Y-%m-%d %H:%M} UTC"
        lines += ["", f"**Refinement {each.number}**: {about}", "", quoted(each.text)]
    if state.outcome or state.spec is None or state.features < REFINE_TASK:
        return lines
    if signatures_required(state):
        return [
            *lines,
            "",
            f"Only a signed refinement counts: `{code(f'holdfast refine {state.thread} --narrow TEXT')}`",
        ]
    what = f"To refine it (`narrow`, `rescope` or `correct`), press {_named('refine')}"
    return [*lines, "", what, "", REFINEMENT]


def _named(signal: str) -> str:
    """Return the instructions to send a signal of that name."""
    return f"{WHERE}. Choose the signal `{signal}`, and send"


def _refusal(event: AgentEvent) -> str:
    """Return a line about a rejected signal or update."""
    at = f"{event.at:%Y-%m-%d %H:%M:%S} UTC"
    match event:
        case DecisionReceived():
            what = f"{event.decision} on request {event.request}"
        case SignalRejected():
            what = event.signal
        case _:
            raise TypeError(f"{event.type} refuses nothing")
    by = f" by {event.by}" if event.by else ""
    outcome = event.outcome.replace("_", " ")
    return f"- {at}: {plain(what + by, 200)} did not count ({outcome}): {plain(event.explanation, 400)}"


def pause_words(pause: Pause) -> str:
    """Return a line with the author, end and reason of a pause: `alice until 2026-01-02 03:04 UTC: "look"`."""
    until = f" until {pause.until:%Y-%m-%d %H:%M} UTC" if pause.until else ""
    return (
        plain(speaker_words(pause.by, pause.proof), 100)
        + until
        + (f": {plain(pause.reason, 300)}" if pause.reason else "")
    )


def delay_words(call: CallState) -> str:
    """Return a line with the start time of a delayed call, and the reason."""
    assert call.starts_at is not None
    return f"waits until {call.starts_at:%Y-%m-%d %H:%M:%S} UTC: {plain(call.delay_reason)}"


def paused_details(pause: Pause, thread: str, *, signed: bool) -> list[str]:
    """Return the lines about a pause, and about the signal that ends it; if that has to be signed, the command."""
    since = f"Since {pause.since:%Y-%m-%d %H:%M} UTC, nothing starts; decisions and messages count when it resumes."
    lines = ["", "### Paused", "", since, ""]
    if signed:
        return [*lines, f"Only a signed statement ends it: `{code(f'holdfast resume {thread}')}`", ""]
    return [*lines, f"To resume it, press {_named('resume')}", "", WHO, ""]


def dormant_details(dormancy: Dormancy) -> list[str]:
    """Return the lines about the waits of a dormant run, and about the signal that wakes it."""
    rows = [f"- call {wait.number}: {plain(wait.words, 1_000)}" for wait in dormancy.waits[:SHOWN_WAITS]]
    if (more := len(dormancy.waits) - SHOWN_WAITS) > 0:
        rows += [f"- and {more} more"]
    lines = ["", "### Dormant", "", *rows, ""]
    if dormancy.buffered:
        lines += [f"Events that no call has waited for yet: {len(dormancy.buffered)}", ""]
    if trigger := next((each.trigger for each in dormancy.waits if isinstance(each.trigger, EventTrigger)), None):
        event = {"event": trigger.event, "id": "", "data": trigger.match, "by": "your name"}
        payload = json.dumps(event, indent=1)
        lines += [f"To send an event, press {_named('wake')}", "", f"```json\n{payload}\n```", ""]
    payload = json.dumps({"by": "your name", "reason": "why"}, indent=1)
    return [*lines, f"To wake it now, press {_named('wake')}", "", f"```json\n{payload}\n```", ""]


def blocked_details(blocked: Blocked, signed: str = "") -> list[str]:
    """Return the lines about the cause of a blocked run or loop, and about the signal that unblocks it.

    Args:
        blocked: The block.
        signed: The thread, if only a signed statement unblocks it.
    """
    lines = ["", f"### Blocked: {plain(blocked.cause)}", "", quoted(blocked.message), ""]
    if blocked.after:
        lines += [plain(f"The run gave up {blocked.after}"), ""]
    if signed:
        return [*lines, f"Fix the cause. Then only a signed statement counts: `{code(f'holdfast retry {signed}')}`", ""]
    return [*lines, f"Fix the cause. Then press {WHERE}: the signal `retry` with", "", WHO]


def budget_details(account: Account) -> list[str]:
    """Return the spent, reserved and remaining amounts of each limit; no lines for a run without a budget."""
    view = account.view() if account.limits else None
    if view is None:
        return []
    rows = [
        f"- {each['limit']}: {each['spent']} of {each['allowed']} spent, {each['reserved']} reserved, "
        f"{each['left']} left"
        for each in view["limits"]
    ]
    return ["### Budget", "", *rows, ""]


def extend_details(state: RunState) -> list[str]:
    """Return the instructions to extend a spent budget."""
    if signatures_required(state):
        return ["", f"Only a signed extension counts: `{code(f'holdfast extend {state.thread}')}`", ""]
    account = state.account
    name: LimitName = next(iter(account.limits)) if account.short == "" else account.short
    more = amount_text(name, account.limits[name])
    payload = {name: more if name == "usd" else int(float(more)), "by": "your name"}
    block = ["```json", json.dumps(payload, indent=1), "```"]
    return ["", "To extend the budget, choose the signal `extend`, and send what it gets in addition:", "", *block, ""]
