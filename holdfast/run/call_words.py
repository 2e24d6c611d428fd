"""A tool call in one line."""

import json

from holdfast.authority.statements import parsed
from holdfast.base.text import one_line
from holdfast.llm.blocks import ToolCall


def describe_call(call: ToolCall) -> str:
    """Return a tool call as the Web UI lists it: `read_file(path="CHANGELOG.md")`."""
    arguments = parsed(call.arguments)
    if not isinstance(arguments, dict):
        return one_line(f"{call.name}({call.arguments})")
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(f"{call.name}({shown})")
