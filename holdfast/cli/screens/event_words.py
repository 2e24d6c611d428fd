"""Short texts for messages, tool calls, and those events whose summary takes more than a line of code."""

import json
from datetime import datetime

from rich.text import Text

from holdfast.cli.text import brief, clock, count, indented, visible
from holdfast.client.threads import JSON
from holdfast.core.authority.approvals import WORDS
from holdfast.core.authority.statements import speaker_words
from holdfast.core.llm.blocks import ReplyContent, ToolCall, blocks_of, text_of
from holdfast.core.llm.messages import AssistantMessage, ToolMessage, from_json
from holdfast.core.llm.outages import Outage
from holdfast.core.tools.effects import describe_call
from holdfast.core.tools.failures import FailedAttempts
from holdfast.core.tools.triggers import WAKE_TRIGGER


def trigger_text(trigger: JSON) -> str:
    """Return a short description of the trigger that a call waits for."""
    return WAKE_TRIGGER.validate_python(trigger).words


def loop_text(event: JSON) -> str:
    """Return the summary of an event that only loops have."""
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


def node_text(node: JSON) -> str:
    """Return a node's name and labels."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(node["labels"].items()))
    return f"{node['name'] or 'a node without a name'}{f' ({labels})' if labels else ''}"


def node_policy_text(event: JSON) -> str:
    """Return the rule of the node's own policy that let the work run; empty if the node has not judged it."""
    return f", by its policy {event['policy'][:12]} ({event['rule']})" if event["policy"] else ""


def rejections_text(event: JSON) -> str:
    """Return the nodes that did not take the work; empty if none was asked."""
    lines = "; ".join(f"{each['node']}: {each['reason']}" for each in event["rejected"])
    return f"; sent on by {lines}" if lines else ""


def scope_text(event: JSON) -> str:
    """Return the scope of a new constraint, and its end; empty if the event creates none."""
    if not event["scope"]:
        return ""
    return f" {event['scope']}" + (f", until {clock(event['until'])}" if event["until"] else "")


def cause_text(event: JSON) -> str:
    """Return the cause of a failed call, in a word; empty if unknown."""
    return f" ({event['cause'].replace('_', ' ')})" if event["cause"] else ""


def repeats_text(event: JSON) -> str:
    """Return how often in a row a call has ended like this."""
    return f", like this {event['repeats']:,} times in a row" if event["repeats"] else ""


def failures_text(event: JSON) -> str:
    """Return the earlier attempts at a call that failed."""
    return f", {FailedAttempts.model_validate(event['failures']).words}" if event.get("failures") else ""


def findings_text(event: JSON) -> str:
    """Return the findings of the tools that check the state of the world."""
    return "; ".join(f"{each['tool']}: {each['status']}: {each['content']}" for each in event["findings"])


def tier_text(tier: JSON) -> str:
    """Return how much of a tier of memory the LLM sees."""
    left_out = f", {tier['left_out']:,} left out" if tier["left_out"] else ""
    return f"{tier['tier']}: {count(len(tier['text']), 'character')}{left_out}"


def reply_text(event: JSON) -> str:
    """Return the LLM's text and calls, with tokens and duration."""
    message = AssistantMessage.model_validate(event["message"] or {})
    content = content_text(message.content)
    calls = ", ".join(call.name for call in message.tool_calls)
    text = brief("; ".join(part for part in (content, f"calls {calls}" if calls else "") if part) or "nothing", 120)
    usage = event["usage"]
    again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
    tokens = f"{usage['prompt_tokens']:,} + {usage['completion_tokens']:,} tokens"
    took = f"{tokens}, {event['duration_ms']:,} ms{again}{fallback_text(event)}"
    return f"{text}  ({took}){brief(outage_text(event), 300)}{clipped_text(event)}"


def fallback_text(event: JSON) -> str:
    """Return the endpoint that replied, and which LLMs of the agent's order were passed over for it, and why."""
    if not event.get("endpoint"):
        return ""
    passed = [f"{each['llm']} ({brief(each['message'], 80)})" for each in event.get("passed_over") or ()]
    over = f" in place of {', '.join(passed)}" if passed else ""
    return visible(f", {event['llm']} at {event['endpoint']}{over}")


def outage_text(event: JSON) -> str:
    """Return the failures before the LLM replied, or before the run gave up."""
    if not event["outage"]:
        return ""
    outage = Outage.model_validate(event["outage"]).words(datetime.fromisoformat(event["at"]))
    lost = event.get("attempt", 1) - 1 - event["outage"]["failed"]
    return f", {outage}" + (f" (and {count(lost, 'attempt')} that left no trace)" if lost > 0 else "")


def clipped_text(event: JSON) -> str:
    """Return the artifact that has the full text, if the event has only its head and tail."""
    if not event["artifact"]:
        return ""
    size = f", {event['size']:,} bytes" if event.get("size") else ""
    return f"  [clipped{size}; full text in {visible(event['artifact'])}]"


def stack_text(event: JSON) -> str:
    """Return the artifact that has the stack trace of a tool's exception."""
    return f"  [stack trace in {visible(event['stack'])}]" if event.get("stack") else ""


def principal_text(statement: JSON) -> str:
    """Return the author of a statement, and the proof of it; a name without a proof is marked as a claim."""
    return speaker_words(str(statement["by"]), str(statement.get("proof", "")))


def decision_text(event: JSON) -> str:
    """Return a person's decision and its outcome."""
    reason = f": {event['reason']}" if event["reason"] else ""
    explanation = f" ({event['explanation']})" if event["explanation"] else ""
    by = f"{event['by']} for {event['right']}" if event["right"] else event["by"]
    edited = f" with {json.dumps(event['arguments'], ensure_ascii=False)}" if event["arguments"] is not None else ""
    decision = f"request {event['request']}: {event['decision']}{edited} by {speaker_words(by, event['proof'])}"
    said = f', and says "{event["say"]}"' if event.get("say") else ""
    return brief(f"{decision}{reason}{said} → {event['outcome']}{explanation}", 240)


def overdue_text(event: JSON) -> str:
    """Return the effect of a request's deadline."""
    request = f"request {event['request']}"
    match event["type"]:
        case "approval_escalated":
            return brief(f"{request}: {', '.join(event['by'])} may now decide, too")
        case "approval_expired":
            return f"{request}: expired; by the policy, {event['decision']}"
        case _:
            return f"{request}: still waiting for a decision"


def authority_text(event: JSON) -> str:
    """Return the beginning or the end of a rule or a delegation."""
    match event["type"]:
        case "rule_remembered":
            by = ", ".join(event["by"])
            text = f"rule {event['rule']}: this call of {event['tool']} is allowed from now on, by {by}"
        case "rule_revoked":
            text = f"rule {event['rule']} revoked, by {principal_text(event)}"
        case "authority_delegated":
            reason = f": {event['reason']}" if event["reason"] else ""
            text = f"{principal_text(event)} to {event['to']}, until {clock(event['until'])}{reason}"
        case "key_revoked":
            reason = f": {event['reason']}" if event["reason"] else ""
            text = f"{event['revoked']} no longer counts, by {principal_text(event)}{reason}"
        case _:
            text = f"{principal_text(event)} from {event['to']}"
    return brief(text, 240)


def request_summary(request: JSON) -> str:
    """Return a request as an event has it, in one line."""
    question = WORDS.get(request["kind"], "")
    call = call_text({"id": "", "name": request["tool"], "arguments": request["arguments"]})
    return f"request {request['id']}: {question} {call} ({brief(request['why'])})"


def amounts_text(more: JSON) -> str:
    """Return the amounts that are added to a budget."""
    return ", ".join(f"{name}={amount}" for name, amount in more.items() if amount is not None)


def call_text(call: JSON) -> str:
    """Return a tool call in one line: `publish(version="1.2")`."""
    return visible(describe_call(ToolCall(id="", name=call["name"], arguments=call["arguments"])))


def message_text(message: JSON) -> Text:
    """Return a message of the transcript: its role, then its content."""
    parsed = from_json(message)
    content = content_text(parsed.content)
    lines = [visible(content)] if content else []
    if isinstance(parsed, AssistantMessage):
        lines += [f"→ {visible(call.name)}({visible(call.arguments)})" for call in parsed.tool_calls]
    about = f" {brief(parsed.tool_call_id)}" if isinstance(parsed, ToolMessage) else ""
    style = {"user": "bold", "assistant": "bold cyan", "tool": "bold green"}[parsed.role]
    return Text.assemble((f"{parsed.role}{about}", style), "\n", indented("\n".join(lines)), "\n")


def content_text(content: ReplyContent) -> str:
    """Return the text of a message, without its tool calls."""
    return text_of(tuple(block for block in blocks_of(content) if not isinstance(block, ToolCall)))
