"""The fold: what the LLM is asked for it, and the hand-off message that takes the place of what came before.

1. The request for it is the very transcript with one instruction behind it, so that a provider's prompt cache hits.
2. The task, what people said since, what was denied and what is in doubt are handed on verbatim; the rest is the
   LLM's summary. The originals stay in the log.
3. A message of a person that holds more than text (images, files) follows the hand-off as it was sent; where there is
   no room for it (`holdfast.transcript.transcript.ORIGINALS_BYTES`), the hand-off has its text and names what is
   left out.
"""

from collections.abc import Collection, Iterator

from holdfast.llm.messages import UserMessage, encode
from holdfast.run.state import RunState
from holdfast.transcript.transcript import TASK

INSTRUCTION = """\
The conversation is about to be folded: everything above will be replaced by a hand-off message that you write now, \
and you will go on from it alone. Write down what you need in order to go on: what was done and with which results, \
what was learnt, what turned out not to work and why, which files and identifiers matter, and what comes next. \
The task, later messages from people, denials and calls of unknown outcome are handed on word for word: do not \
repeat them. There may be no room for older images and files: say what they show, as far as it matters. \
Reply with the summary only; call no tool."""

NO_SUMMARY = "(There is no summary: the conversation did not fit the context window any more.)"


def summary_request(*, tools: bool) -> tuple[bytes, bytes]:
    """What a request for a fold has behind the transcript: one more message, and what follows the messages."""
    return encode(UserMessage(content=INSTRUCTION)), b',"tool_choice":"none"' if tools else b""


def summary_message(state: RunState, summary: str, *, originals: Collection[int] = ()) -> str:
    """The hand-off message.

    Args:
        state: Before the fold.
        summary: The LLM's own words.
        originals: Positions of the messages that follow the hand-off as they were sent.
    """
    task = "It is the first message after this one." if TASK in originals else state.task
    parts = [
        "This conversation was folded. What follows stands in for everything before.",
        f"## The task, word for word\n\n{task}",
    ]
    if state.memory:
        parts.append(state.memory)
    if state.said:
        parts.append("\n\n".join(_said(state, originals)))
    if state.standing:
        parts.append("## Denied, or of unknown outcome\n\n" + "\n".join(f"- {line}" for line in state.standing))
    parts.append(f"## Summary\n\n{summary or NO_SUMMARY}")
    return "\n\n".join(parts)


def _said(state: RunState, originals: Collection[int]) -> Iterator[str]:
    """What people said since the task, and what of it is missing here."""
    whole = not state.unsaid and all(not said.more or said.message in originals for said in state.said)
    yield "## Said since, word for word" if whole else "## Said since, word for word but for what is left out"
    if state.unsaid:
        yield f"[The first {state.unsaid:,} messages are in the log, and left out here]"
    for said in state.said:
        if said.more and said.message in originals:
            yield f"- [message {said.message}, with {said.more}: see below]"
        elif said.more:
            yield f"- {said.text}\n  [{said.more} of message {said.message}: in the log, and left out here]"
        else:
            yield f"- {said.text}"
