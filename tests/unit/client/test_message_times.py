"""The time of each message of a transcript, from the events alone."""

import pytest
from hypothesis import given

from holdfast.client.message_times import TimedTranscript
from holdfast.core.agents.agent import Limits
from holdfast.core.llm.messages import AssistantMessage, ToolMessage, UserMessage, decode, encode, with_time
from holdfast.core.transcript.transcript import Transcript
from tests.support.plays import SEEDS, play
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says


def timed(thread: Thread, *, keep_all: bool = True) -> TimedTranscript:
    """Return the thread's messages with their times."""
    transcript = TimedTranscript(keep_all=keep_all)
    for event in thread.log:
        transcript.add(event)
    return transcript


@pytest.mark.parametrize("keep_all", [True, False])
@given(seed=SEEDS)
def test_the_messages_are_those_of_the_transcript_each_with_the_time_of_an_event(seed: int, keep_all: bool) -> None:
    """Compactions, refinements, resets and reopened threads included."""
    thread, transcript = play(seed).thread, Transcript(keep_all=keep_all)
    for event in thread.log:
        transcript.add(event)
    messages = timed(thread, keep_all=keep_all).messages()
    assert [line for line, _ in messages] == transcript.messages
    assert {at for _, at in messages} <= {event.at for event in thread.log}


def test_a_message_has_the_time_at_which_it_arrived_and_a_result_that_at_which_it_was_recorded() -> None:
    """Not the time at which the LLM reads it: the person waited from then on, and results wait for earlier calls."""
    thread = loaded_thread(agent_spec(limits=Limits(idle_limit=60)))
    thread.reply(calls("look", "look"))
    thread.advance(minutes=1)
    thread.finish(2)
    second = thread.log[-1].at
    thread.advance(minutes=1)
    thread.say("are you there?", by="alice")
    asked = thread.log[-1].at
    thread.advance(minutes=1)
    thread.finish(1)
    first = next(event.at for event in thread.log if event.type == "tool_call_finished" and event.number == 1)
    thread.reply(says("yes"))
    times = {str(decode(line).content): at for line, at in timed(thread).messages()}
    results = [at for line, at in timed(thread).messages() if isinstance(decode(line), ToolMessage)]
    assert times["are you there?"] == asked
    assert results == [first, second]
    assert first > asked > second


@pytest.mark.parametrize(
    "message",
    [UserMessage(content="x"), AssistantMessage(content="y"), ToolMessage(tool_call_id="1", content="z")],
)
def test_a_time_is_no_part_of_a_message(message: UserMessage | AssistantMessage | ToolMessage) -> None:
    """Two messages with the same content are equal, and have the same line in the transcript."""
    later = with_time(message, NOW)
    assert (later.at, message.at) == (NOW, None)
    assert later == message
    assert encode(later) == encode(message)
    assert "at" not in later.model_dump()
