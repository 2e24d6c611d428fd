"""Messages, tool calls and single events in a few words, if an event needs more than a line of code."""

import json
from datetime import datetime

from rich.text import Text

from holdfast.cli.text import brief, clock, count, indented, visible
from holdfast.client.threads import JSON
from holdfast.core.authority.statements import speaker_words
from holdfast.core.authority.summaries import describe_call
from holdfast.core.llm.blocks import ReplyContent, ToolCall, blocks_of, text_of
from holdfast.core.llm.messages import AssistantMessage, ToolMessage, from_json
from holdfast.core.llm.outages import Outage
from holdfast.core.tools.failures import FailedAttempts
from holdfast.core.tools.triggers import WAKE_TRIGGER


def trigger_words(trigger: JSON) -> str:
    """What a call waits for, in a few words."""
    return WAKE_TRIGGER.validate_python(trigger).words


def loop_words(event: JSON) -> str:
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


def scope_words(event: JSON) -> str:
    """Which calls are refused from here on, and until when; empty where a constraint refused this one."""
    if not event["scope"]:
        return ""
    return f" {event['scope']}" + (f", until {clock(event['until'])}" if event["until"] else "")


def cause_words(event: JSON) -> str:
    """Why a call failed, in a word, where that is known."""
    return f" ({event['cause'].replace('_', ' ')})" if event["cause"] else ""


def repeats_words(event: JSON) -> str:
    """How often a call has ended like this in a row."""
    return f", like this {event['repeats']:,} times in a row" if event["repeats"] else ""


def failures_words(event: JSON) -> str:
    """The attempts at a call that failed before."""
    return f", {FailedAttempts.model_validate(event['failures']).words}" if event.get("failures") else ""


def findings_words(event: JSON) -> str:
    """What the tools found that look at the state of the world."""
    return "; ".join(f"{each['tool']}: {each['status']}: {each['content']}" for each in event["findings"])


def tier_words(tier: JSON) -> str:
    """How much of a tier of memory the LLM is shown."""
    left_out = f", {tier['left_out']:,} left out" if tier["left_out"] else ""
    return f"{tier['tier']}: {count(len(tier['text']), 'character')}{left_out}"


def reply_words(event: JSON) -> str:
    """What the LLM said and called, and what that took."""
    message = AssistantMessage.model_validate(event["message"] or {})
    words = content_words(message.content)
    calls = ", ".join(call.name for call in message.tool_calls)
    text = brief("; ".join(part for part in (words, f"calls {calls}" if calls else "") if part) or "nothing", 120)
    usage = event["usage"]
    again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
    tokens = f"{usage['prompt_tokens']:,} + {usage['completion_tokens']:,} tokens"
    return (
        f"{text}  ({tokens}, {event['duration_ms']:,} ms{again}){brief(outage_words(event), 300)}{clipped_words(event)}"
    )


def outage_words(event: JSON) -> str:
    """The failures before the LLM answered, or before the run gave up."""
    if not event["outage"]:
        return ""
    words = Outage.model_validate(event["outage"]).words(datetime.fromisoformat(event["at"]))
    lost = event.get("attempt", 1) - 1 - event["outage"]["failed"]
    return f", {words}" + (f" (and {count(lost, 'attempt')} that left no trace)" if lost > 0 else "")


def clipped_words(event: JSON) -> str:
    """The artifact that has the whole text, where the event has only its head and tail."""
    if not event["artifact"]:
        return ""
    size = f", {event['size']:,} bytes" if event.get("size") else ""
    return f"  [clipped{size}; full text in {visible(event['artifact'])}]"


def speaker(said: JSON) -> str:
    """Who says something, and how that is known; a name without a proof is marked as a claim."""
    return speaker_words(str(said["by"]), str(said.get("proof", "")))


def decision_words(event: JSON) -> str:
    """What a person decided, and what came of it."""
    reason = f": {event['reason']}" if event["reason"] else ""
    explanation = f" ({event['explanation']})" if event["explanation"] else ""
    by = f"{event['by']} for {event['right']}" if event["right"] else event["by"]
    edited = f" with {json.dumps(event['arguments'], ensure_ascii=False)}" if event["arguments"] is not None else ""
    words = f"request {event['request']}: {event['decision']}{edited} by {speaker_words(by, event['proof'])}"
    return brief(f"{words}{reason} → {event['outcome']}{explanation}", 240)


def overdue_words(event: JSON) -> str:
    """What a deadline of a request has led to."""
    request = f"request {event['request']}"
    match event["type"]:
        case "approval_escalated":
            return brief(f"{request}: {', '.join(event['by'])} may now decide, too")
        case "approval_expired":
            return f"{request}: expired; by the policy, {event['decision']}"
        case _:
            return f"{request}: still waiting for a decision"


def authority_words(event: JSON) -> str:
    """A rule or a delegation that begins or ends."""
    match event["type"]:
        case "rule_remembered":
            by = ", ".join(event["by"])
            words = f"rule {event['rule']}: this call of {event['tool']} is allowed from now on, by {by}"
        case "rule_revoked":
            words = f"rule {event['rule']} revoked, by {speaker(event)}"
        case "authority_delegated":
            reason = f": {event['reason']}" if event["reason"] else ""
            words = f"{speaker(event)} to {event['to']}, until {clock(event['until'])}{reason}"
        case "key_revoked":
            reason = f": {event['reason']}" if event["reason"] else ""
            words = f"{event['revoked']} counts no longer, by {speaker(event)}{reason}"
        case _:
            words = f"{speaker(event)} from {event['to']}"
    return brief(words, 240)


def request_summary(request: JSON) -> str:
    """A request as an event carries it, in one line."""
    question = "may this run?" if request["kind"] == "approval" else "did this happen?"
    call = call_text({"id": "", "name": request["tool"], "arguments": request["arguments"]})
    return f"request {request['id']}: {question} {call} ({brief(request['why'])})"


def amounts_words(more: JSON) -> str:
    """What is added to a budget."""
    return ", ".join(f"{name}={amount}" for name, amount in more.items() if amount is not None)


def call_text(call: JSON) -> str:
    """A tool call in one line: `publish(version="1.2")`."""
    return visible(describe_call(ToolCall(id="", name=call["name"], arguments=call["arguments"])))


def message_text(message: JSON) -> Text:
    """A message of the transcript: its role, then its content."""
    said = from_json(message)
    words = content_words(said.content)
    lines = [visible(words)] if words else []
    if isinstance(said, AssistantMessage):
        lines += [f"→ {visible(call.name)}({visible(call.arguments)})" for call in said.tool_calls]
    about = f" {brief(said.tool_call_id)}" if isinstance(said, ToolMessage) else ""
    style = {"user": "bold", "assistant": "bold cyan", "tool": "bold green"}[said.role]
    return Text.assemble((f"{said.role}{about}", style), "\n", indented("\n".join(lines)), "\n")


def content_words(content: ReplyContent) -> str:
    """What a message says, without its tool calls."""
    return text_of(tuple(block for block in blocks_of(content) if not isinstance(block, ToolCall)))
