"""The reply so far, as a reader has seen it: what the chunks add up to. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from holdfast.core.streams.chunks import Chunk
from holdfast.core.streams.following import ENDS
from holdfast.core.tools.spec import FINAL_RESULT


@dataclass
class DraftCall:
    """A tool call that the LLM is writing."""

    tool: str
    arguments: str = ""


@dataclass
class Draft:
    """A reply that is being written. It is empty again as soon as the log has the reply."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, DraftCall] = field(default_factory=dict)
    """By the call's number in the reply."""

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk of a stream."""
        match chunk.kind:
            case "superseded":
                self.clear()
            case "text" | "refusal":
                self.text += chunk.text
            case "reasoning":
                self.reasoning += chunk.text
            case "arguments":
                call = self.calls.setdefault(chunk.call or 0, DraftCall(chunk.tool))
                call.tool = chunk.tool or call.tool
                call.arguments += chunk.text

    def event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the thread."""
        if event["type"] in ENDS:
            self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self.text = self.reasoning = ""
        self.calls = {}

    @property
    def result(self) -> Any:
        """The structured result as far as it is written, not validated; None if there is none, or no value yet."""
        written = [call.arguments for call in self.calls.values() if call.tool == FINAL_RESULT]
        try:
            arguments = from_json(written[-1], allow_partial="trailing-strings") if written else None
        except ValueError:
            return None
        return arguments.get("result") if isinstance(arguments, dict) else None
