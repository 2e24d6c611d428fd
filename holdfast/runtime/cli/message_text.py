"""Each message of a transcript in a few lines, and a tool call in one."""

from rich.text import Text

from holdfast.llm.blocks import ReplyContent, ToolCall, blocks_of, text_of
from holdfast.llm.messages import AssistantMessage, ToolMessage, from_json
from holdfast.run.summaries import describe_call
from holdfast.runtime.cli.text import brief, indented, visible
from holdfast.runtime.client.threads import JSON


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
