"""The fold: what the LLM is asked for it, and the hand-off message that takes the place of what came before.

1. The request for it is the very transcript with one instruction behind it, so that a provider's prompt cache hits.
2. The task, what people said since, what was denied and what is in doubt are handed on verbatim; the rest is the
   LLM's summary. The originals stay in the log.
"""

from holdfast.messages import UserMessage, encode
from holdfast.state import RunState

INSTRUCTION = """\
The conversation is about to be folded: everything above will be replaced by a hand-off message that you write now, \
and you will go on from it alone. Write down what you need in order to go on: what was done and with which results, \
what was learnt, what turned out not to work and why, which files and identifiers matter, and what comes next. \
The task, later messages from people, denials and calls of unknown outcome are handed on word for word: do not \
repeat them. Reply with the summary only; call no tool."""

NO_SUMMARY = "(There is no summary: the conversation did not fit the context window any more.)"


def fold_tail(*, tools: bool) -> tuple[bytes, bytes]:
    """What a request for a fold has behind the transcript: one more message, and what follows the messages."""
    return encode(UserMessage(content=INSTRUCTION)), b',"tool_choice":"none"' if tools else b""


def handoff(state: RunState, summary: str) -> str:
    """The hand-off message."""
    parts = [
        "This conversation was folded. What follows stands in for everything before.",
        f"## The task, word for word\n\n{state.task}",
    ]
    if state.memory:
        parts.append(state.memory)
    if state.said:
        parts.append("## Said since, word for word\n\n" + "\n\n".join(f"- {text}" for text in state.said))
    if state.standing:
        parts.append("## Denied, or of unknown outcome\n\n" + "\n".join(f"- {line}" for line in state.standing))
    parts.append(f"## Summary\n\n{summary or NO_SUMMARY}")
    return "\n\n".join(parts)
