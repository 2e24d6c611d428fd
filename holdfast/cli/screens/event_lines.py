"""Formats each event as one line. Works on JSON, so it also shows events of a newer release."""

import json

from rich.text import Text

from holdfast.cli.screens.event_words import (
    amounts_text,
    authority_text,
    call_text,
    cause_text,
    clipped_text,
    decision_text,
    failures_text,
    findings_text,
    loop_text,
    node_policy_text,
    node_text,
    outage_text,
    overdue_text,
    principal_text,
    rejections_text,
    repeats_text,
    reply_text,
    request_summary,
    scope_text,
    stack_text,
    tier_text,
    trigger_text,
)
from holdfast.cli.text import brief, clock, count
from holdfast.client.threads import JSON
from holdfast.core.base.constraint_names import constraint_name
from holdfast.core.base.durations import span_text
from holdfast.core.budget.budget import amount_text
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.messages import read_content
from holdfast.core.log.loop_events import STORED_EVENTS

PROGRESS = frozenset(
    {
        *("agent_loaded", "llm_replied", "reply_rejected", "tool_call_requested", "tool_call_finished"),
        *("approval_requested", "reconcile_requested", "answer_requested", "decision_received"),
        *("approval_reminded", "approval_escalated", "approval_expired", "rule_remembered", "state_verified"),
        *(
            "run_reset",
            "events_lost",
            "run_forked",
            "move_requested",
            "run_imported",
            "task_refined",
            "run_reclassified",
            "policy_change_requested",
            "policy_changed",
            "policy_change_failed",
            "message_taken",
            "message_awaited",
            "learning_requested",
            "learning_skipped",
        ),
        *("llm_call_lost", "context_exceeded", "compaction_requested", "context_compacted"),
        *(
            "constraint_lifted",
            "context_updated",
            "run_blocked",
            "run_unblocked",
            "run_paused",
            "run_resumed",
            "run_finished",
        ),
        *("dormancy_began", "wake_received", "subagent_started", "subagent_ended"),
        *("budget_low", "budget_spent", "budget_extended"),
    }
)
"""The events that `start --wait` shows as progress."""

_STYLES = {
    "approval_requested": "bold yellow",
    "answer_requested": "bold yellow",
    "reconcile_requested": "bold yellow",
    "approval_reminded": "yellow",
    "approval_escalated": "yellow",
    "approval_expired": "bold yellow",
    "reply_rejected": "yellow",
    "run_blocked": "bold red",
    "run_reset": "yellow",
    "events_lost": "bold yellow",
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
    "run_reclassified": "bold",
    "policy_changed": "bold",
    "policy_change_failed": "yellow",
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
    """Return an event as a line of `log`: position, time, type and summary."""
    kind = str(event["type"])
    style = _STYLES.get(kind, "")
    outcome = event.get("status") or event.get("outcome") or ""
    return Text.assemble(
        (f"{event['position']:>4}  {clock(event['at'])}  ", "dim"),
        (f"{kind:<22}", style),
        "  ",
        (event_summary(event), _STATUS_STYLES.get(str(outcome), style)),
    )


NARROW = 72
"""The number of columns below which a line has no room for the full time and the event's type beside the summary."""


def event_row(event: JSON, columns: int) -> Text:
    """Return an event as one row of a terminal; on a narrow one, the time of day and the summary."""
    line = event_line(event)
    if columns < NARROW:
        summary = event_summary(event) or str(event["type"]).replace("_", " ")
        line = Text.assemble((f"{clock(event['at'])[11:16]} ", "dim"), (summary, _STYLES.get(str(event["type"]), "")))
    line.truncate(columns, overflow="ellipsis")
    return line


def event_summary(event: JSON) -> str:
    """Return the summary of an event, in one line."""
    try:
        return _summary(_with_defaults(event))
    except (KeyError, TypeError, ValueError, AttributeError):
        common = {"schema_version", "position", "at", "digest", "type"}
        return brief(json.dumps({name: value for name, value in event.items() if name not in common}))


def _with_defaults(event: JSON) -> JSON:
    """Return the event with the default values that its JSON omits.

    Raises:
        ValueError: This version does not have such an event.
    """
    return STORED_EVENTS.validate_python([event])[0].model_dump(mode="json")


def _summary(event: JSON) -> str:
    match event["type"]:
        case "run_started":
            idle = f", open for messages for {event['idle_limit']:g} s" if event["idle_limit"] else ""
            brought = f", with a claimed conversation of {n} messages" if (n := len(event["conversation"])) else ""
            return f"agent {brief(event['agent'] or 'by default')}, run {event['run_id']}{idle}{brought}"
        case "run_continued":
            return f"in Temporal run {event['run_id']}"
        case "run_reset":
            done = "; ".join(f"{effect['call'] or effect['tool']}: {effect['status']}" for effect in event["effects"])
            return brief(f"reset to here; effects since then: {done or 'none'}", 240)
        case "events_lost":
            last = event["events"] - 1
            return f"events {event['position']} to {last} were lost: the record was restored from an older backup"
        case "run_forked":
            point, by = event["point"], f" by {event['by']}" if event.get("by") else ""
            changes = f", with LLM {event['llm']}" if event.get("llm") else ""
            changes += ", under a further policy" if event.get("policies") else ""
            return brief(f"forked from {point['thread']} after event {point['position']}{by}{changes}", 240)
        case "move_requested":
            why = f": {event['reason']}" if event.get("reason") else ""
            return brief(f"{principal_text(event)} moves the run to another place{why}", 240)
        case "run_imported":
            point, by = event["point"], f" by {event['by']}" if event.get("by") else ""
            signer = f"signed with {point['signer']}" if point.get("signer") else "not signed"
            return brief(f"imported{by} after event {point['position']}, from a file that is {signer}", 240)
        case "user_message_received":
            by = f"{event['by'] if event['task'] else principal_text(event)}: " if event["by"] else ""
            return brief(by + text_of(read_content(event["content"])))
        case "task_refined":
            by = event["by"] if event["call"] is not None else principal_text(event)
            return brief(f"refinement {event['refinement']}, {event['kind']}, by {by}: {event['text']}", 240)
        case "run_reclassified":
            limits = f"budget {amounts_text(event['budget'])}" if event["budget"] else ""
            agent, trust = event["agent"] and f"agent {event['agent']}", event["trust"] and f"trust {event['trust']}"
            why = event["reason"] and f": {event['reason']}"
            return brief(f"{', '.join(filter(None, (agent, trust, limits)))}, by {principal_text(event)}{why}", 300)
        case "policy_change_requested":
            why = event["reason"] and f": {event['reason']}"
            return brief(f"policy {event['policy'][:16]}…, by {principal_text(event)}{why}", 300)
        case "policy_changed":
            return f"the run has another policy, of {count(len(event['policy']['rules']), 'rule')}"
        case "policy_change_failed":
            return brief(f"the run keeps its policy: {event['problem']}", 300)
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
                total = used["prompt_tokens"] + used["completion_tokens"]
                each += f", or {total:,} with a reply that is not recorded"
            return f"{attempts} may have cost {tokens}{each}, and gave no reply; the call is made again"
        case "context_exceeded":
            return brief(event["message"], 300)
        case "context_compacted":
            kept = f", {count(event['kept'], 'message')} kept" if event["kept"] else ""
            whole = f", {count(len(event['originals']), 'message')} kept in full" if event["originals"] else ""
            what = f"{count(event['messages'], 'message')} summarized{whole}{kept}{outage_text(event)}"
            return brief(f"{what}: {event['summary']}", 240)
        case "agent_loaded":
            spec = event["spec"]
            return brief(
                f"{spec['name']} with {spec['llm']}, {count(len(spec['tools']), 'tool')}, {event['workspace']}"
            )
        case "memory_recalled":
            return brief("; ".join(tier_text(each) for each in event["tiers"]), 240)
        case "llm_replied":
            return reply_text(event)
        case "reply_rejected":
            return brief(event["reason"])
        case "tool_call_requested":
            own = "the run's own " if event["own"] else ""
            return f"{own}call {event['number']}: {call_text(event['call'])}"
        case "verdict_given":
            times = f"the same result {event['repeats']:,} times"
            why = f"no answer in {count(event['unanswered'], 'step')}" if event["unanswered"] else times
            later = f", starts {event['delay']:g} s later: {why}" if event["delay"] else ""
            return f"call {event['number']}: {event['verdict']} ({brief(event['rule'])}){later}"
        case "preview_requested":
            return f"the preview of {brief(event['request']['tool'])}, for request {event['request']['id']}"
        case "approval_requested" | "reconcile_requested" | "answer_requested":
            return request_summary(event["request"]) + brief(failures_text(event), 300) + stack_text(event)
        case "decision_received":
            return decision_text(event)
        case "approval_reminded" | "approval_escalated" | "approval_expired":
            return overdue_text(event)
        case "rule_remembered" | "rule_revoked" | "authority_delegated" | "delegation_revoked" | "key_revoked":
            return authority_text(event)
        case "state_verified":
            return brief(f"after a pause of {span_text(event['paused_seconds'])}: {findings_text(event)}", 240)
        case "baseline_recorded":
            return brief(f"at the request: {findings_text(event)}", 240)
        case "tool_call_postponed":
            why = f": {event['reason']}" if event["reason"] else ""
            return brief(f"call {event['number']} until {clock(event['until'])} ({event['rule']}){why}", 300)
        case "tool_call_started":
            undo = ", to undo it" if event["undo"] else ""
            grant = f", by request {event['request']}" if event["request"] else ""
            return f"call {event['number']}{undo}{grant}"
        case "tool_call_finished":
            adopted = ", found done already" if event["adopted"] else ""
            took = f", {event['duration_ms']:,} ms" if event["duration_ms"] else ""
            result = brief(text_of(read_content(event["content"])))
            part = f", without {event['missing']}" if event["missing"] else ""
            how = f"{event['status']}{part}{cause_text(event)}{scope_text(event)}{adopted}{took}{repeats_text(event)}"
            kept = f"{clipped_text(event)}{stack_text(event)}"
            return f"call {event['number']}: {how}{brief(failures_text(event), 300)}: {result}{kept}"
        case "dormancy_began":
            kept = f", ended at once by event {event['wake']}" if event["wake"] else ""
            return brief(f"call {event['number']} waits for {trigger_text(event['trigger'])}{kept}", 300)
        case "wait_polled":
            took = f", {event['duration_ms']:,} ms" if event["duration_ms"] else ""
            again = f", looks again at {clock(event['again'])}" if event["again"] else ""
            return f"call {event['number']}, look {event['poll']:,}: {event['status']}, {event['result']}{took}{again}"
        case "wake_received":
            what = f"event {event['event']}" if event["event"] else "wake"
            more = f" for call {event['call']}" if event["call"] else ""
            why = f": {event['reason']}" if event["reason"] else ""
            return brief(f"{what}{more} by {principal_text(event)}, {event['outcome']} {event['data']}{why}", 300)
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
            return brief(f"{what}, by {principal_text(event)}{why}")
        case "node_accepted":
            return brief(f"{node_text(event['node'])}{node_policy_text(event)}{rejections_text(event)}", 400)
        case "node_awaited":
            what = f"call {event['number']} waits" if event["number"] else "waits"
            return brief(f"{what} for a node, until {clock(event['until'])}{rejections_text(event)}", 400)
        case "tool_call_rerouted":
            end = f", until {clock(event['until'])}" if event["until"] else ""
            return brief(f"call {event['number']} leaves {event['nodes']}{end}: {event['reason']}", 400)
        case "context_updated":
            return brief(f"call {event['number']}: {json.dumps(event['changes'], ensure_ascii=False)}", 300)
        case "run_blocked":
            return brief(f"{event['cause']}: {event['message']}{outage_text(event)}", 600)
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
            why = event["reason"] and f": {event['reason']}"
            then = ", and the run continues" if event["resumes"] else ""
            return brief(f"by {principal_text(event)}, {amounts_text(event['more'])}{then}{why}", 300)
        case "run_paused":
            until = f" until {clock(event['until'])}" if event["until"] else ""
            return brief(f"by {principal_text(event)}{until}" + (f": {event['reason']}" if event["reason"] else ""))
        case "run_resumed":
            by = f"by {principal_text(event)}" if event["by"] else "automatically, because its time is over"
            return brief(by + (f": {event['reason']}" if event["reason"] else ""))
        case "signal_rejected":
            by = f" by {event['by']}" if event["by"] else ""
            return brief(f"{event['signal']}{by}: {event['explanation']}")
        case "refusals_counted":
            return f"{event['count']:,} more signals were rejected, with {event['sent_bytes']:,} bytes"
        case "loop_started" | "workspace_surveyed" | "iteration_started" | "iteration_ended":
            return loop_text(event)
        case "run_finished":
            cause = f" ({event['cause']})" if event["cause"] else ""
            return f"{event['outcome']}{cause}: {brief(event['result'])}"
        case _:  # any other statement of a person
            words = event.get("text") or event["reason"]
            return brief(f"by {principal_text(event)}" + (f": {words}" if words else ""))
