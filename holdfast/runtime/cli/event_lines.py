"""Each event in one line, and each message of a transcript in a few. Works on JSON, so it also shows events of a newer
release.
"""

import json
from datetime import datetime

from rich.text import Text

from holdfast.base.constraint_names import constraint_name
from holdfast.base.durations import span_text
from holdfast.budget.budget import amount_text
from holdfast.llm.blocks import ReplyContent, ToolCall, blocks_of, text_of
from holdfast.llm.content import read_content
from holdfast.llm.messages import AssistantMessage, ToolMessage, from_json
from holdfast.llm.outages import Outage
from holdfast.log.loop_events import STORED_EVENTS
from holdfast.run.call_words import describe_call
from holdfast.runtime.cli.text import brief, clock, count, indented, visible
from holdfast.runtime.client.threads import JSON
from holdfast.tools.failures import FailedAttempts
from holdfast.tools.triggers import WAKE_TRIGGER

PROGRESS = frozenset(
    {
        *("agent_loaded", "llm_replied", "reply_rejected", "tool_call_requested", "tool_call_finished"),
        *("approval_requested", "reconcile_requested", "decision_received"),
        *("approval_reminded", "approval_escalated", "approval_expired", "rule_remembered", "state_verified"),
        *(
            "run_reset",
            "run_forked",
            "move_requested",
            "run_imported",
            "task_refined",
            "message_taken",
            "message_awaited",
            "learning_requested",
            "learning_skipped",
        ),
        *("llm_call_lost", "context_exceeded", "compaction_requested", "context_compacted"),
        *("constraint_lifted", "run_blocked", "run_unblocked", "run_paused", "run_resumed", "run_finished"),
        *("dormancy_began", "wake_received", "subagent_started", "subagent_ended"),
        *("budget_low", "budget_spent", "budget_extended"),
    }
)
"""The events that `start --wait` shows as progress."""

_STYLES = {
    "approval_requested": "bold yellow",
    "reconcile_requested": "bold yellow",
    "approval_reminded": "yellow",
    "approval_escalated": "yellow",
    "approval_expired": "bold yellow",
    "reply_rejected": "yellow",
    "run_blocked": "bold red",
    "run_reset": "yellow",
    "signal_rejected": "yellow",
    "refusals_counted": "yellow",
    "budget_low": "yellow",
    "budget_spent": "bold yellow",
    "context_exceeded": "yellow",
    "llm_call_lost": "yellow",
    "learning_skipped": "yellow",
    "message_awaited": "bold green",
    "user_message_received": "bold",
    "task_refined": "bold",
    "llm_replied": "cyan",
    "iteration_started": "cyan",
}
_STATUS_STYLES = {
    "ok": "green",
    "blocked": "bold red",
    "changed": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "moved": "blue",
    "denied": "yellow",
    "answered": "green",
    "undone": "yellow",
    "cannot": "yellow",
    "waiting_for_quorum": "yellow",
    "invalid": "yellow",
    "unknown": "bold yellow",
}


def event_line(event: JSON) -> Text:
    """An event as `log` shows it: position, time, type, and what it says."""
    kind = str(event["type"])
    style = _STYLES.get(kind, "")
    outcome = event.get("status") or event.get("outcome") or ""
    return Text.assemble(
        (f"{event['position']:>4}  {clock(event['at'])}  ", "dim"),
        (f"{kind:<22}", style),
        "  ",
        (event_summary(event), _STATUS_STYLES.get(str(outcome), style)),
    )


def event_summary(event: JSON) -> str:
    """What an event says, in one line."""
    try:
        return _summary(_with_defaults(event))
    except (KeyError, TypeError, ValueError, AttributeError):
        known = {"schema_version", "position", "at", "digest", "type"}
        return brief(json.dumps({name: value for name, value in event.items() if name not in known}))


def _with_defaults(event: JSON) -> JSON:
    """The event with the fields that its JSON leaves out because they have their defaults.

    Raises:
        ValueError: This version does not know the event.
    """
    return STORED_EVENTS.validate_python([event])[0].model_dump(mode="json")


def _summary(event: JSON) -> str:
    match event["type"]:
        case "run_started":
            idle = f", open for messages for {event['idle_limit']:g} s" if event["idle_limit"] else ""
            return f"agent {brief(event['agent'] or 'by default')}, run {event['run_id']}{idle}"
        case "run_continued":
            return f"in Temporal run {event['run_id']}"
        case "run_reset":
            done = "; ".join(f"{effect['call'] or effect['tool']}: {effect['status']}" for effect in event["effects"])
            return brief(f"reset to here; effects since then: {done or 'none'}", 240)
        case "run_forked":
            point, by = event["point"], f" by {event['by']}" if event.get("by") else ""
            given = f", with LLM {event['llm']}" if event.get("llm") else ""
            given += ", under a further policy" if event.get("policies") else ""
            return brief(f"forked from {point['thread']} after event {point['position']}{by}{given}", 240)
        case "move_requested":
            why = f": {event['reason']}" if event.get("reason") else ""
            return brief(f"{event['by']} moves the run to another place{why}", 240)
        case "run_imported":
            point, by = event["point"], f" by {event['by']}" if event.get("by") else ""
            signer = f"signed with {point['signer']}" if point.get("signer") else "not signed"
            return brief(f"imported{by} after event {point['position']}, from a file that is {signer}", 240)
        case "user_message_received":
            by = f"{event['by']}: " if event["by"] else ""
            return brief(by + text_of(read_content(event["content"])))
        case "task_refined":
            proof = f" ({event['proof']})" if event["proof"] else ""
            return brief(
                f"refinement {event['refinement']}, {event['kind']}, by {event['by']}{proof}: {event['text']}", 240
            )
        case "message_taken":
            return f"message {event['message']} is shown to the LLM"
        case "message_awaited":
            return brief(event["result"] or "nothing")
        case "learning_requested":
            return "the LLM is asked what is worth remembering"
        case "learning_skipped":
            return brief(f"{event['cause']}: {event['message']}", 300)
        case "llm_call_lost":
            attempts, tokens = count(event["attempts"], "attempt"), f"{event['request_tokens']:,} tokens"
            each = " each" if event["attempts"] > 1 else ""
            if used := event.get("usage"):
                counted = used["prompt_tokens"] + used["completion_tokens"]
                each += f", or {counted:,} with a reply that is not recorded"
            return f"{attempts} may have cost {tokens}{each}, and gave no reply; the call is made again"
        case "context_exceeded":
            return brief(event["message"], 300)
        case "compaction_requested":
            return brief(f"by {event['by']}" + (f": {event['reason']}" if event["reason"] else ""))
        case "context_compacted":
            kept = f", {count(event['kept'], 'message')} kept" if event["kept"] else ""
            whole = f", {count(len(event['originals']), 'message')} kept in full" if event["originals"] else ""
            return brief(
                f"{count(event['messages'], 'message')} summarized{whole}{kept}{_outage(event)}: {event['summary']}",
                240,
            )
        case "agent_loaded":
            spec = event["spec"]
            return brief(
                f"{spec['name']} with {spec['llm']}, {count(len(spec['tools']), 'tool')}, {event['workspace']}"
            )
        case "memory_recalled":
            return brief("; ".join(_tier(each) for each in event["tiers"]), 240)
        case "llm_replied":
            return _reply(event)
        case "reply_rejected":
            return brief(event["reason"])
        case "tool_call_requested":
            own = "the run's own " if event["own"] else ""
            return f"{own}call {event['number']}: {call_text(event['call'])}"
        case "verdict_given":
            times = f"the same result {event['repeats']:,} times"
            later = f", starts {event['delay']:g} s later: {times}" if event["delay"] else ""
            return f"call {event['number']}: {event['verdict']} ({brief(event['rule'])}){later}"
        case "approval_requested" | "reconcile_requested":
            return request_summary(event["request"]) + brief(_failures(event), 300)
        case "decision_received":
            return _decision(event)
        case "approval_reminded" | "approval_escalated" | "approval_expired":
            return _overdue(event)
        case "rule_remembered" | "rule_revoked" | "authority_delegated" | "delegation_revoked":
            return _authority(event)
        case "state_verified":
            return brief(f"after a pause of {span_text(event['paused_seconds'])}: {_findings(event)}", 240)
        case "baseline_recorded":
            return brief(f"at the request: {_findings(event)}", 240)
        case "tool_call_started":
            undo = ", to undo it" if event["undo"] else ""
            grant = f", by request {event['request']}" if event["request"] else ""
            return f"call {event['number']}{undo}{grant}"
        case "tool_call_finished":
            adopted = ", found done already" if event["adopted"] else ""
            took = f", {event['duration_ms']:,} ms" if event["duration_ms"] else ""
            result = brief(text_of(read_content(event["content"])))
            how = f"{event['status']}{_cause(event)}{_scope(event)}{adopted}{took}{_repeats(event)}"
            return f"call {event['number']}: {how}{brief(_failures(event), 300)}: {result}{_clipped(event)}"
        case "dormancy_began":
            kept = f", ended at once by event {event['wake']}" if event["wake"] else ""
            return brief(f"call {event['number']} waits for {trigger_words(event['trigger'])}{kept}", 300)
        case "wait_polled":
            took = f", {event['duration_ms']:,} ms" if event["duration_ms"] else ""
            again = f", looks again at {clock(event['again'])}" if event["again"] else ""
            return f"call {event['number']}, look {event['poll']:,}: {event['status']}, {event['result']}{took}{again}"
        case "wake_received":
            what = f"event {event['event']}" if event["event"] else "wake"
            more = f" for call {event['call']}" if event["call"] else ""
            why = f": {event['reason']}" if event["reason"] else ""
            return brief(f"{what}{more} by {event['by']}, {event['outcome']} {event['data']}{why}", 300)
        case "subagent_started":
            where = ", in the background" if event["background"] else ""
            return brief(f"call {event['number']}: agent {event['agent']} in thread {event['thread']}{where}", 300)
        case "subagent_ended":
            return brief(
                f"call {event['number']}: thread {event['thread']} {event['status']}, {event['steps']} steps", 300
            )
        case "constraint_lifted":
            why = f": {event['reason']}" if event["reason"] else ""
            number = event["constraint"]
            what = f"constraint {constraint_name(number)}" if number else "effects of the fork run as the policy says"
            return brief(f"{what}, by {event['by']}{why}")
        case "run_blocked":
            return brief(f"{event['cause']}: {event['message']}{_outage(event)}", 600)
        case "budget_reserved":
            usd = f", {amount_text('usd', event['nano_usd'])} usd" if event["nano_usd"] else ""
            what = f"the sub-agent of call {event['call']}" if event.get("call") else "the next LLM call"
            steps = f"{count(event['steps'], 'step')}, " if event.get("call") and event["steps"] else ""
            return f"{steps}{count(event['tokens'], 'token')}{usd} for {what}"
        case "budget_low":
            return brief(f"{event['spent']} of {event['allowed']} {event['limit']} are used")
        case "budget_spent":
            last = "the LLM makes its last call" if event["last_call"] else "no call fits"
            return brief(f"too little is left of {event['limit']}: {last}")
        case "budget_extended":
            proof, why = (f" ({event['proof']})" if event["proof"] else ""), event["reason"] and f": {event['reason']}"
            then = ", and the run continues" if event["resumes"] else ""
            return brief(f"by {event['by']}{proof}, {_amounts(event['more'])}{then}{why}", 300)
        case "run_unblocked":
            return brief(f"by {event['by']}" + (f": {event['reason']}" if event["reason"] else ""))
        case "run_paused":
            until = f" until {clock(event['until'])}" if event["until"] else ""
            return brief(f"by {event['by']}{until}" + (f": {event['reason']}" if event["reason"] else ""))
        case "run_resumed":
            by = f"by {event['by']}" if event["by"] else "by itself, for its time is over"
            return brief(by + (f": {event['reason']}" if event["reason"] else ""))
        case "signal_rejected":
            by = f" by {event['by']}" if event["by"] else ""
            return brief(f"{event['signal']}{by}: {event['explanation']}")
        case "refusals_counted":
            return f"{event['count']:,} more signals were rejected, with {event['sent_bytes']:,} bytes"
        case "loop_started" | "workspace_surveyed" | "iteration_started" | "iteration_ended":
            return _of_loop(event)
        case "run_finished":
            cause = f" ({event['cause']})" if event["cause"] else ""
            return f"{event['outcome']}{cause}: {brief(event['result'])}"
        case _:
            raise KeyError(event["type"])


def trigger_words(trigger: JSON) -> str:
    """What a call waits for, in a few words."""
    return WAKE_TRIGGER.validate_python(trigger).words


def _of_loop(event: JSON) -> str:
    """What an event says that only loops have."""
    match event["type"]:
        case "loop_started":
            by = f"by {event['by']}, " if event["by"] else ""
            limits = ", ".join(f"{name} {value:g}" for name, value in event["limits"].items() if value is not None)
            task = f": {event['task']}" if event["task"] else ""
            return brief(f"{by}in {event['workspace']} ({limits}){task}", 240)
        case "workspace_surveyed":
            return f"{count(event['open'], 'task')} open, {event['done']:,} done"
        case "iteration_started":
            return brief(f"{event['thread']}: {event['task'] or 'write the plan'}")
        case _:
            why = f": {event['explanation']}" if event["explanation"] else ""
            commits = f", {count(len(event['commits']), 'commit')}" if event["commits"] else ""
            cost = "" if event["cost"] is None else f", ${event['cost']:,.4f}"
            return brief(f"iteration {event['number']}: {event['outcome']}{commits}{cost}{why}", 240)


def _scope(event: JSON) -> str:
    """Which calls are refused from here on, and until when; empty where a constraint refused this one."""
    if not event["scope"]:
        return ""
    return f" {event['scope']}" + (f", until {clock(event['until'])}" if event["until"] else "")


def _cause(event: JSON) -> str:
    """Why a call failed, in a word, where that is known."""
    return f" ({event['cause'].replace('_', ' ')})" if event["cause"] else ""


def _repeats(event: JSON) -> str:
    return f", like this {event['repeats']:,} times in a row" if event["repeats"] else ""


def _failures(event: JSON) -> str:
    """The attempts at a call that failed before."""
    return f", {FailedAttempts.model_validate(event['failures']).words}" if event.get("failures") else ""


def _findings(event: JSON) -> str:
    return "; ".join(f"{each['tool']}: {each['status']}: {each['content']}" for each in event["findings"])


def _tier(tier: JSON) -> str:
    left_out = f", {tier['left_out']:,} left out" if tier["left_out"] else ""
    return f"{tier['tier']}: {count(len(tier['text']), 'character')}{left_out}"


def _reply(event: JSON) -> str:
    message = AssistantMessage.model_validate(event["message"] or {})
    words = _words(message.content)
    calls = ", ".join(call.name for call in message.tool_calls)
    text = brief("; ".join(part for part in (words, f"calls {calls}" if calls else "") if part) or "nothing", 120)
    usage = event["usage"]
    again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
    tokens = f"{usage['prompt_tokens']:,} + {usage['completion_tokens']:,} tokens"
    return f"{text}  ({tokens}, {event['duration_ms']:,} ms{again}){brief(_outage(event), 300)}{_clipped(event)}"


def _outage(event: JSON) -> str:
    """The failures before the LLM answered, or before the run gave up."""
    if not event["outage"]:
        return ""
    words = Outage.model_validate(event["outage"]).words(datetime.fromisoformat(event["at"]))
    lost = event.get("attempt", 1) - 1 - event["outage"]["failed"]
    return f", {words}" + (f" (and {count(lost, 'attempt')} that left no trace)" if lost > 0 else "")


def _clipped(event: JSON) -> str:
    """The artifact that has the whole text, where the event has only its head and tail."""
    if not event["artifact"]:
        return ""
    size = f", {event['size']:,} bytes" if event.get("size") else ""
    return f"  [clipped{size}; full text in {visible(event['artifact'])}]"


def _decision(event: JSON) -> str:
    reason = f": {event['reason']}" if event["reason"] else ""
    explanation = f" ({event['explanation']})" if event["explanation"] else ""
    how = ", ".join(part for part in (f"for {event['right']}" if event["right"] else "", event["proof"]) if part)
    edited = f" with {json.dumps(event['arguments'], ensure_ascii=False)}" if event["arguments"] is not None else ""
    words = f"request {event['request']}: {event['decision']}{edited} by {event['by']}{f' ({how})' if how else ''}"
    return brief(f"{words}{reason} → {event['outcome']}{explanation}", 240)


def _overdue(event: JSON) -> str:
    """What a deadline of a request has led to."""
    request = f"request {event['request']}"
    match event["type"]:
        case "approval_escalated":
            return brief(f"{request}: {', '.join(event['by'])} may now decide, too")
        case "approval_expired":
            return f"{request}: expired; by the policy, {event['decision']}"
        case _:
            return f"{request}: still waiting for a decision"


def _authority(event: JSON) -> str:
    """A rule or a delegation that begins or ends."""
    proof = f" ({event['proof']})" if event.get("proof") else ""
    match event["type"]:
        case "rule_remembered":
            by = ", ".join(event["by"])
            words = f"rule {event['rule']}: this call of {event['tool']} is allowed from now on, by {by}"
        case "rule_revoked":
            words = f"rule {event['rule']} revoked, by {event['by']}{proof}"
        case "authority_delegated":
            reason = f": {event['reason']}" if event["reason"] else ""
            words = f"{event['by']} to {event['to']}, until {clock(event['until'])}{proof}{reason}"
        case _:
            words = f"{event['by']} from {event['to']}{proof}"
    return brief(words, 240)


def request_summary(request: JSON) -> str:
    """A request as an event carries it, in one line."""
    question = "may this run?" if request["kind"] == "approval" else "did this happen?"
    call = call_text({"id": "", "name": request["tool"], "arguments": request["arguments"]})
    return f"request {request['id']}: {question} {call} ({brief(request['why'])})"


def call_text(call: JSON) -> str:
    """A tool call in one line: `publish(version="1.2")`."""
    return visible(describe_call(ToolCall(id="", name=call["name"], arguments=call["arguments"])))


def message_text(message: JSON) -> Text:
    """A message of the transcript: its role, then its content."""
    said = from_json(message)
    words = _words(said.content)
    lines = [visible(words)] if words else []
    if isinstance(said, AssistantMessage):
        lines += [f"→ {visible(call.name)}({visible(call.arguments)})" for call in said.tool_calls]
    about = f" {brief(said.tool_call_id)}" if isinstance(said, ToolMessage) else ""
    style = {"user": "bold", "assistant": "bold cyan", "tool": "bold green"}[said.role]
    return Text.assemble((f"{said.role}{about}", style), "\n", indented("\n".join(lines)), "\n")


def _words(content: ReplyContent) -> str:
    """What a message says, without its tool calls."""
    return text_of(tuple(block for block in blocks_of(content) if not isinstance(block, ToolCall)))


def _amounts(more: JSON) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in more.items() if amount is not None)
