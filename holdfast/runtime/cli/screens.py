"""Screens for people: one thread, a list of threads, open requests."""

import json
import math
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from holdfast.authority.approvals import ANSWERS
from holdfast.base.constraint_names import constraint_name, constraint_origin
from holdfast.base.readable_json import readable_json
from holdfast.run.details import votes_words
from holdfast.run.substates.dormancy import looks_words
from holdfast.runtime.audit.verify import Verification
from holdfast.runtime.cli.budget_words import budget_words, left_words
from holdfast.runtime.cli.costs import cost_words
from holdfast.runtime.cli.outlook_rows import outlook_rows
from holdfast.runtime.cli.text import age_words, brief, clock, count, indented, visible
from holdfast.runtime.client.threads import JSON
from holdfast.runtime.programs import CLI
from holdfast.runtime.reading.record import EndedThread
from holdfast.runtime.reading.runs import Retrying
from holdfast.stores import origin_of
from holdfast.tools.triggers import WAKE_TRIGGER

TASK_CHARS = 48
"""Characters of a task in a list."""

STATUS_STYLES = {
    "running": "cyan",
    "waiting_approval": "bold yellow",
    "waiting_message": "yellow",
    "paused": "bold blue",
    "paused_in_temporal": "blue",
    "dormant": "blue",
    "blocked": "bold red",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "moved": "blue",
}

_OPTIONS = {
    "approve": ("approve",),
    "deny": ("deny",),
    "respond": ("respond",),
    "happened": ("reconcile", "--happened"),
    "absent": ("reconcile", "--absent"),
    "undo": ("reconcile", "--undo"),
    "abandon": ("reconcile", "--abandon"),
}
_MEANINGS = {
    "approve": "let it run",
    "deny": "refuse it; --reason is shown to the agent",
    "respond": "answer in the tool's place",
    "happened": "it did; --result gives the agent its result",
    "absent": "it did not: run it now",
    "undo": "undo what it may have done",
    "abandon": "leave the outcome unknown and continue",
}


_ROW_STYLES = {"Now": "bold", "Error": "red", "Paused": "yellow", "Retrying": "yellow", "Warning": "yellow"}


def show_screen(
    state: JSON,
    *,
    retrying: Sequence[Retrying],
    ui: str | None,
    last: JSON | None = None,
    now: datetime | None = None,
) -> Text:
    """One thread: where it is, what it waits for, what went wrong last, and the commands that act on it."""
    thread, status = state["thread"], state["status"]
    origin = origin_of(thread)
    screen = Text.assemble(
        (visible(thread), "bold"),
        "  ",
        (status.replace("_", " "), STATUS_STYLES.get(status, "")),
        f"  agent {state['agent'] or 'not loaded'}, step {state['step']}, {count(state['events'], 'event')}",
        f", phase {state['lifecycle']}" if state.get("lifecycle") else "",
        (f", as it was after event {state['at']}" if "at" in state else "", "yellow"),
        "\n\n",
    )
    usage = state["usage"]
    at = now or datetime.now(UTC)
    rows = outlook_rows(state, last, now=at)
    rows += [("Task", visible(state["task"])), *map(refinement_row, state.get("refinements", ()))]
    rows += [("Workspace", visible(state["workspace"])), ("Schedule", visible(state.get("schedule", "")))]
    rows += [("Root", visible(root_words(state))), *(("Sub-agent", child_words(c)) for c in state.get("subagents", ()))]
    rows += [("Running", visible(call)) for call in state.get("running", ())]
    rows += [("Delayed", delay_words(each, at)) for each in state.get("delayed", ())]
    rows += [("Paused" if each.paused else "Retrying", retry_words(each, now=at, thread=thread)) for each in retrying]
    rows += [("Warning", visible(state.get("warning", "")))]
    rows += [("Tokens", tokens_words(usage)), ("Cost", cost_words(state) if "cost" in state else "")]
    rows += [("Budget", budget_words(state.get("budget")))]
    rows += [("Limits", limits_words(state.get("limits"))), ("Web UI", ui or "")]
    for label, text in rows:
        if text:
            head, *rest = text.splitlines()
            screen.append(f"{label:<10} ", "dim").append(head + "\n", _ROW_STYLES.get(label, ""))
            screen.append("".join(f"{'':<11}{line}\n" for line in rest))
    if paused := state.get("paused"):
        why = f": {brief(paused['reason'], 400)}" if paused["reason"] else ""
        screen.append("\nPaused ", "bold blue").append(f"by {brief(paused['by'])}{pause_words(paused)}{why}\n")
        if origin is None:
            screen.append(f"  {CLI.command('resume', thread)}\n", "bold")
    if dormancy := state.get("dormancy"):
        screen.append(_dormancy_text(thread, dormancy))
    if blocked := state["blocked"]:
        screen.append("\nBlocked ", "bold red").append(f"{brief(blocked['cause'])}: {visible(blocked['message'])}\n")
        if after := blocked.get("after"):
            screen.append(f"  gave up {brief(after, 400)}\n")
        if reason := blocked.get("reason"):
            screen.append(f"  last: {brief(reason, 1_000)}\n")
        if origin is None:
            then = ("extend", thread, "--budget", "usd=1") if blocked["cause"] == "BudgetSpent" else ("retry", thread)
            screen.append(f"  {CLI.command(*then)}\n", "bold")
    for rule in state.get("remembered", ()):
        revoke = CLI.command("revoke", thread, "--remembered", rule["rule"])
        screen.append("\nAllowed from now on  ", "bold").append(
            f"this call of {brief(rule['tool'])}, by {brief(rule['by'])}\n"
        )
        if "arguments" in rule:
            screen.append(indented(readable_json(rule["arguments"]), "    ") + "\n")
        screen.append(f"  {revoke}\n", "dim")
    for delegation in state.get("delegated", ()):
        who = f"{brief(delegation['by'])} to {brief(delegation['to'])}, until {clock(delegation['until'])}"
        screen.append("\nDelegated  ", "bold").append(f"by {who}\n")
        screen.append(f"  {CLI.command('revoke', thread, '--delegated-to', delegation['to'])}\n", "dim")
    for constraint in state.get("constraints", ()):
        if not _stands(constraint, at):
            continue
        name, what = constraint_name(constraint["constraint"]), f"every call of {constraint['tool']}"
        if constraint["scope"] == "here":
            what = f"{constraint['tool']}({constraint['arguments']})"
        end = f", until {clock(constraint['until'])}" if constraint["until"] else ""
        origin = constraint_origin(constraint["constraint"])
        given = f", {origin}" if origin else ""
        screen.append(f"\nConstraint {name}  ", "bold").append(f"refuses {brief(what, 300)}{end}{given}\n")
        screen.append(f"  {brief(constraint['reason'], 600)}\n")
        screen.append(f"  {CLI.command('lift', thread, name)}\n", "dim")
    if fork := state.get("fork"):
        screen.append("\nFork ", "bold").append(f"of {brief(fork['thread'])} after event {fork['position']}")
        screen.append(f", by {brief(fork['by'])}\n" if fork["by"] else "\n")
        if fork.get("llm"):
            screen.append(f"  its LLM is {brief(fork['llm'])}\n")
        for digest in fork.get("policies", ()):
            screen.append(f"  policy {digest[:12]} judges its calls, too: the strictest verdict counts\n")
        if fork["effects_ask"]:
            screen.append("  its effects ask first, whatever the policy allows\n")
            screen.append(f"  {CLI.command('lift', thread, '0')}\n", "dim")
    for request in state["pending"]:
        asked = request_screen if origin is None else _request_text
        screen.append("\n").append(asked({"thread": thread, **request}))
    if state["result"]:
        title = "Why" if status in ("failed", "cancelled") else "Result"
        screen.append(f"\n{title}\n", "bold").append(indented(visible(state["result"])) + "\n")
    if origin:
        screen.append(f"\nThis is what a reset of {visible(origin)} has left behind: nothing continues it\n", "bold")
        screen.append(f"  {CLI.command('show', origin)}\n", "bold")
    elif status == "waiting_message":
        screen.append(f"\nIt is open for a message\n  {CLI.command('say', thread, 'MESSAGE')}\n", "bold")
    screen.rstrip()
    return screen


def refinement_row(refinement: JSON) -> tuple[str, str]:
    """How the task was refined: number and kind, by whom and when, and the text in lines of its own."""
    head = f"{refinement['refinement']}, {refinement['kind']}, by {brief(refinement['by'])}, {clock(refinement['at'])}"
    return "Refined", f"{head}\n{indented(visible(refinement['text']))}"


def _stands(constraint: JSON, at: datetime) -> bool:
    """Whether a constraint has not ended by itself."""
    return not constraint["until"] or datetime.fromisoformat(constraint["until"]) > at


def _dormancy_text(thread: str, dormancy: JSON) -> Text:
    """What a run sleeps for, the events that it keeps, and the commands that wake it."""
    screen = Text()
    for wait in dormancy["waits"]:
        words = WAKE_TRIGGER.validate_python(wait).words
        screen.append("\nDormant ", "bold blue").append(f"call {wait['call']} waits for {brief(words, 400)}\n")
        if polls := wait.get("polls"):
            looks = looks_words(polls["count"], polls["result"])
            screen.append(f"  looks again at {clock(polls['again'])} ({looks})\n")
        data = ("--data", json.dumps(wait["match"])) if wait.get("match") else ()  # in ASCII: an LLM's words
        event = ("--event", wait["event"], *data) if wait["kind"] == "event" else ()
        screen.append(f"  {CLI.command('wake', thread, *event)}\n", "bold")
    if kept := dormancy["buffered"]:
        names = ", ".join(dict.fromkeys(brief(each["event"]) for each in kept))
        screen.append("\nKept ", "bold").append(f"{count(len(kept), 'event')} that no call waits for yet: {names}\n")
    return screen


def pause_words(pause: JSON) -> str:
    """Since when a run is paused, and until when."""
    return f" since {clock(pause['since'])}" + (f", until {clock(pause['until'])}" if pause["until"] else "")


def request_screen(request: JSON) -> Text:
    """An open request: the call with all its arguments, why it needs a decision, and the commands that decide."""
    screen = _request_text(request)
    width = 0
    commands = []
    for decision in request.get("answers", ANSWERS.get(request["kind"], ())):
        if decision not in _OPTIONS:
            continue  # of a newer release
        verb, *options = _OPTIONS[decision]
        given = ["TEXT"] if decision == "respond" else options
        commands.append((CLI.command(verb, request["thread"], request["request"], *given), _MEANINGS[decision]))
        width = max(width, len(commands[-1][0]))
    for line, meaning in commands:
        screen.append(f"  {line:<{width}}", "bold").append(f"  {meaning}\n", "dim")
    return screen


def _request_text(request: JSON) -> Text:
    """A request without the commands that decide."""
    screen = request_head(request)
    screen.append(indented(readable_json(request["arguments"]), "    ") + "\n")
    for words in request_terms(request):
        screen.append(f"  {words}\n", "dim")
    return screen


def request_terms(request: JSON) -> tuple[str, ...]:
    """What a decision depends on besides the call: who decides and by when, reminders, the rule, and the digest."""
    lines = [terms_words(request)]
    if edited_by := request.get("edited_by"):
        lines.append(f"{brief(edited_by)} has changed the LLM's arguments")
    if veto := request.get("veto"):
        lines.append(f"May also deny: {brief(', '.join(veto), 300)}")
    later = [
        f"reminded {count(request['reminded'], 'time')}" if request.get("reminded") else "",
        f"next reminder {clock(request['remind_at'])}" if request.get("remind_at") else "",
        f"more people are asked {clock(request['escalate_at'])}" if request.get("escalate_at") else "",
    ]
    lines.append(", ".join(part for part in later if part))
    if rule := request.get("rule"):
        lines.append(f"Rule: {brief(rule, 400)}")
    if digest := request.get("digest"):
        lines.append(f"Digest: {brief(digest)}")
    return tuple(line[:1].upper() + line[1:] for line in lines if line)


def delay_words(delayed: JSON, now: datetime) -> str:
    """How long a repeated call still waits, and why."""
    seconds = max(0, math.ceil((datetime.fromisoformat(delayed["starts_at"]) - now).total_seconds()))
    why = f"the same call has had the same result {count(delayed['repeats'], 'time')}"
    return f"call {delayed['call']} of {visible(delayed['tool'])} waits {seconds:,} s: {why}"


def limits_words(limits: JSON | None) -> str:
    """What counts towards the agent's limits, each with its limit."""
    if not limits:
        return ""
    most, limit = limits.get("repeats", 0), limits.get("repeats_asked", 0)
    repeats = f", a call with the same result {most:,} times" + (f" of {limit:,}" if limit else "") if most > 1 else ""
    return (
        f"steps {limits['steps']:,} of {limits['step_limit']:,}, unusable replies in a row "
        f"{limits['rejected_replies']:,} of {limits['max_rejected_replies']:,}, at most {limits['max_calls']:,} calls "
        f"in a reply{repeats}"
    )


def terms_words(request: JSON) -> str:
    """Who may decide, how many have, and until when; empty where anybody may decide at any time."""
    words, quorum = [], request.get("quorum", 1)
    if who := request.get("who"):
        words.append(f"decided by {brief(', '.join(who), 300)}")
    if quorum > 1:
        words.append(brief(votes_words(request.get("votes", ()), quorum), 300))
    if request.get("expires_at"):
        then = "denied" if request.get("on_expiry", "deny") == "deny" else "approved"
        words.append(f"{then} at {clock(request['expires_at'])}")
    text = "; ".join(words)
    return text[:1].upper() + text[1:]


def signing_screen(request: JSON, payload: JSON, public: str) -> Text:
    """The statement that a person signs."""
    screen = request_head(request)
    screen.append(indented(readable_json(request["arguments"]), "    ") + "\n")
    if "arguments" in payload:
        screen.append("  to run with\n", "dim").append(indented(readable_json(payload["arguments"]), "    ") + "\n")
    decision = f"{payload['decision']} by {payload['by']}" + (" and remember" if payload.get("remember") else "")
    details = "".join(f"; {name}: {brief(payload[name])}" for name in ("reason", "result") if payload.get(name))
    screen.append(f"  Signed: {visible(decision)}{details}\n  digest {request['digest']}, key {public}", "dim")
    return screen


def request_head(request: JSON) -> Text:
    """The question of a request, in one line."""
    question = "may this run?" if request["kind"] == "approval" else "did this happen?"
    return Text.assemble(
        (f"Request {request['request']}", "bold yellow"),
        f" of {visible(request['thread'])}: {question}  ",
        (visible(request["tool"]), "bold"),
        (f"  ({brief(request['why'])})\n", "dim"),
    )


def retry_words(retrying: Retrying, *, now: datetime, thread: str = "") -> str:
    """`call_llm: attempt 4, the LLM does not answer: connection refused, next try in 8 s`.

    Args:
        retrying: The activity.
        now: The time.
        thread: Its thread, for the command that unpauses a paused activity; empty to leave that out.
    """
    silent = "the LLM does not answer: " if retrying.activity == "call_llm" else ""
    if retrying.paused:
        command = (
            f"temporal activity unpause -w {shlex.quote(thread)} --activity-id {shlex.quote(retrying.activity_id)}"
        )
        how = f"; `{command}` resumes it" if thread else ""
        failed = f" after {silent}{brief(retrying.reason, 200)}" if retrying.reason else ""
        return f"{retrying.activity} is paused in Temporal at attempt {retrying.attempt}{failed}{how}"
    reason = brief(retrying.reason, 200) or "no reason given"
    words = f"{retrying.activity}: attempt {retrying.attempt}, {silent}{reason}"
    if retrying.next_try is None:
        return f"{words}, trying now"
    return f"{words}, next try in {max(0, round((retrying.next_try - now).total_seconds()))} s"


def tokens_words(usage: JSON) -> str:
    """The tokens of a thread; empty while there are none."""
    if not usage["prompt_tokens"] and not usage["completion_tokens"]:
        return ""
    cached = f" ({usage['cached_tokens']:,} cached)" if usage["cached_tokens"] else ""
    return f"{usage['prompt_tokens']:,} prompt{cached}, {usage['completion_tokens']:,} completion"


def root_words(state: JSON) -> str:
    """Where a sub-agent stands in its tree; empty for any other run."""
    lineage = state.get("lineage")
    return " > ".join([*lineage["path"], state["thread"]]) if lineage else ""


def child_words(child: JSON) -> str:
    """A sub-agent in a line, as its parent has it."""
    how = f"{child['status']}, in the background" if child["background"] else child["status"]
    return brief(f"{child['thread']}  agent {child['agent']}, {how}", 240)


def list_screen(rows: Sequence[JSON], *, now: datetime | None = None) -> Text:
    """Threads in columns, the task last and shortened. What is unknown is `?`."""
    asleep = any(row.get("wakes_at") for row in rows)
    budgets = any(row.get("budget") for row in rows)
    more = ["LEFT"] if budgets else []
    wakes = ["WAKES"] if asleep else []
    heads = ("THREAD", "STATUS", *wakes, "STEP", "PENDING", "AGE", "COST", *more, "AGENT", "TASK")
    at = now or datetime.now(UTC)
    table = [
        (
            visible(row["thread"]),
            row["status"],
            *([clock(row["wakes_at"]) if row.get("wakes_at") else "–"] if asleep else []),
            str(row["step"]),
            str(row["pending"] or "–"),
            age_words(row["started_at"], now=at),
            cost_words(row),
            *([left_words(row) or "–"] if budgets else []),
            brief(row["agent"] or "–"),
            refined_words(row) + brief(row["task"] or "?", TASK_CHARS),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [heads, *table]) for column in range(len(heads))]
    screen = Text(_columns(heads, widths) + "\n", "dim") if table else Text()
    for line in table:
        thread, status, *rest = line
        screen.append(f"{thread:<{widths[0]}}  ").append(f"{status:<{widths[1]}}", STATUS_STYLES.get(status, ""))
        screen.append("  " + _columns(rest, widths[2:]) + "\n")
    screen.rstrip()
    return screen


def refined_words(row: JSON) -> str:
    """What stands before the task of a thread in a list: a mark where the task was refined since."""
    return "(refined) " if row.get("refinements") else ""


def verify_screen(verified: Verification) -> Text:
    """The result of checking a thread."""
    where = " and ".join(
        {"history": "Temporal's histories", "record": "the permanent record"}[s] for s in verified.sources
    )
    head = ("ok       ", "green") if verified.ok else ("altered  ", "bold red")
    screen = Text.assemble(head, (visible(verified.thread), "bold"), f"  {count(verified.events, 'event')} in {where}")
    if verified.ok and verified.signatures:
        screen.append(f", {count(verified.signatures, 'signature')}")
    if verified.ok and verified.seals:
        screen.append(f", {count(verified.seals, 'seal')}")
    if not verified.ok:
        event = "" if verified.position is None else f"event {verified.position}, "
        place = verified.where if verified.where == "artifacts" else f"the {verified.where}"
        screen.append(f"\n         {event}in {place}: {visible(verified.reason)}\n         {verified.advice}")
    for one in verified.unchecked:
        screen.append(f"\n         not checked: {one.what}: {visible(one.why)}", "dim")
    return screen


def prunable_line(one: EndedThread) -> Text:
    """A thread that ended long ago, in one line."""
    size = f"{count(one.events, 'event')}, {one.bytes:,} bytes"
    return Text.assemble((clock(one.last_at.isoformat()), "dim"), f"  {visible(one.thread)}  ({size})")


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
