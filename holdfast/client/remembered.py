"""The calls that remembered rules allow: a rule has only the digest of its call; the log has the call itself."""

from collections.abc import AsyncIterator, Sequence

from holdfast.client.threads import JSON
from holdfast.core.base.canonical import exact_json, parsed
from holdfast.core.llm.blocks import ToolCall


async def rules_with_arguments(rules: Sequence[JSON], events: AsyncIterator[JSON]) -> list[JSON]:
    """Return the rules, each with the `arguments` of the call that it allows, if the log has them.

    Args:
        rules: The rules, in the format of a state's view.
        events: The thread's events from the first one on.
    """
    wanted = {(rule["tool"], rule["call_digest"]) for rule in rules}
    found: dict[tuple[str, str], str] = {}
    tools: dict[str, str] = {}
    async for event in events:
        arguments = ""
        if event["type"] == "approval_requested":
            asked = event["request"]
            tools[asked["id"]], arguments = asked["tool"], asked["arguments"]
        elif event["type"] == "decision_received" and event.get("arguments") is not None:
            arguments = exact_json(event["arguments"])
        tool = tools.get(event["request"]["id"] if event["type"] == "approval_requested" else event.get("request", ""))
        if not arguments or tool is None:
            continue
        key = (tool, ToolCall(id="", name=tool, arguments=arguments).digest)
        if key in wanted:
            found[key] = arguments
        if len(found) == len(wanted):
            break
    return [
        {**rule, "arguments": parsed(found[key])} if (key := (rule["tool"], rule["call_digest"])) in found else rule
        for rule in rules
    ]
