"""Context compaction: the request for a summary, and the summary message that stands in for the conversation so far.

1. The request is the unchanged transcript with one instruction after it, so that a provider's prompt cache hits.
2. The task and its refinements, later messages from people, unresolved calls and constraints are kept word for word;
   the rest is the LLM's summary, or that of a person. The original messages stay in the log.
3. A person's message with more than text (images, files) follows the summary message as it was sent. If there is no
   room for it (`holdfast.core.transcript.transcript.ORIGINALS_BYTES`), the summary message has its text and lists the
   omitted content.
"""

from collections.abc import Collection, Iterator, Sequence

from holdfast.core.llm.messages import UserMessage
from holdfast.core.run.state.context import Context, TaskRefinement
from holdfast.core.run.state.state import RunState
from holdfast.core.transcript.transcript import TASK, refinement_text

INSTRUCTION = """\
The conversation is about to be compacted: everything above will be replaced by a summary that you write now, and you \
will continue from it alone. Write down what you need in order to continue: what was done and with which results, what \
was learnt, what did not work and why, which files and identifiers matter, and what comes next. The task, later \
messages from people, denials and calls of unknown outcome are handed on word for word: do not repeat them. There may \
be no room for older images and files: say what they show, as far as it matters. Reply with the summary only; call no \
tool."""

NO_SUMMARY = "(There is no summary: the conversation did not fit the context window any more.)"


SUMMARY_REQUEST = UserMessage(content=INSTRUCTION)
"""The message after the transcript in a request for a summary."""


def summary_message(state: RunState, summary: str, *, originals: Collection[int] = ()) -> str:
    """Return the message that stands in for the conversation so far.

    Args:
        state: The state before the compaction.
        summary: The summary: the LLM's, unless the context has one of a person.
        originals: Positions of the messages that follow as they were sent.
    """
    task = "It is the first message after this one." if TASK in originals else state.task
    parts = [
        "This conversation was compacted. What follows stands in for everything before.",
        f"## The task, word for word\n\n{task}",
    ]
    waiting = {message.message for message in state.inbox.waiting}
    refinements = [each for each in state.refinements if each.message not in waiting]  # the others come later
    if refinements:
        parts.append("## The task was refined, word for word")
        parts += [refinement_text(number=r.number, kind=r.kind, by=r.by, text=r.text) for r in refinements]
    context = state.context
    if context.standing_memory:
        parts.append(context.standing_memory)
    if context.follow_ups:
        parts.append("\n\n".join(_follow_ups(context, originals, refinements)))
    if context.unresolved_calls:
        lines = "\n".join(f"- {line}" for line in context.unresolved_calls)
        parts.append(f"## Denied, or of unknown outcome\n\n{lines}")
    if state.constraints.kept:
        lines = "\n".join(f"- {constraint.line}" for constraint in state.constraints.kept)
        parts.append(f"## Cannot be done: such calls are refused\n\n{lines}")
    author = f", written by {context.author}" if context.given else ""
    parts.append(f"## Summary{author}\n\n{summary or NO_SUMMARY}")
    return "\n\n".join(parts)


def _follow_ups(context: Context, originals: Collection[int], refinements: Sequence[TaskRefinement]) -> Iterator[str]:
    """Yield the messages after the task, with notes on omitted content and on the places of refinements."""
    left_out = context.follow_ups_left_out
    complete = not left_out and all(not each.more or each.message in originals for each in context.follow_ups)
    yield "## Said since, word for word" if complete else "## Said since, word for word but for what is left out"
    if left_out:
        yield f"[The first {left_out:,} messages are in the log, and left out here]"
    marks = {each.message: f"- [here came refinement {each.number} of the task]" for each in refinements}
    for each in context.follow_ups:
        yield from (marks.pop(position) for position in sorted(marks) if position < each.message)
        if each.more and each.message in originals:
            yield f"- [message {each.message}, with {each.more}: see below]"
        elif each.more:
            yield f"- {each.text}\n  [{each.more} of message {each.message}: in the log, and left out here]"
        else:
            yield f"- {each.text}"
    yield from marks.values()
