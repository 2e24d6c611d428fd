"""When the messages of a transcript came: a person's when it arrived, a reply or a result when it was recorded."""

from datetime import datetime

from holdfast.core.llm.messages import ToolMessage, decode
from holdfast.core.log import events as ev
from holdfast.core.log.events import AgentEvent
from holdfast.core.transcript.transcript import Transcript


class TimedTranscript:
    """A transcript whose messages have times. Add all events of a thread to it, from the first one on.

    Args:
        keep_all: As in `Transcript`.
    """

    def __init__(self, *, keep_all: bool) -> None:
        self._transcript = Transcript(keep_all=keep_all)
        self._keep_all = keep_all
        self._times: list[datetime] = []
        self._arrived: dict[int, datetime] = {}
        """The position of a message from a person → its time."""
        self._calls: dict[int, str] = {}
        """The number of a call → its id in the reply."""
        self._finished: dict[str, datetime] = {}
        """The id of a call → the time of its result. An LLM may use an id again, in a later reply."""

    def add(self, event: AgentEvent) -> None:
        """Append the messages that the event completes, if any, with their times."""
        match event:
            case ev.UserMessageReceived() | ev.TaskRefined() | ev.RunReclassified():
                self._arrived[event.position] = event.at
            case ev.ToolCallRequested():
                self._calls[event.number] = event.call.id
            case ev.ToolCallFinished() if event.number in self._calls:
                self._finished[self._calls[event.number]] = event.at
        before = self._transcript.length
        self._transcript.add(event)
        if isinstance(event, ev.ContextCompacted) and not self._keep_all:
            self._times = self._after_compaction(event)
        else:
            new = self._transcript.messages[before:] if self._transcript.length > before else []
            self._times += [self._time_of(line, event) for line in new]

    def _time_of(self, line: bytes, event: AgentEvent) -> datetime:
        if isinstance(event, ev.MessageTaken):
            return self._arrived.get(event.message, event.at)
        message = decode(line)
        return self._finished.get(message.tool_call_id, event.at) if isinstance(message, ToolMessage) else event.at

    def _after_compaction(self, event: ev.ContextCompacted) -> list[datetime]:
        """Return the times of the summary, of the messages that it keeps verbatim, and of those after it."""
        kept = self._times[-event.kept :] if event.kept else []
        verbatim = self._transcript.length - 1 - len(kept)
        originals = [self._arrived.get(position, event.at) for position in event.originals][:verbatim]
        return [event.at, *originals, *[event.at] * (verbatim - len(originals)), *kept]

    def messages(self) -> list[tuple[bytes, datetime]]:
        """Return the messages, encoded, each with its time."""
        return list(zip(self._transcript.messages, self._times, strict=True))
