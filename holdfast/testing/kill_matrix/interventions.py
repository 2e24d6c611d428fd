"""Interventions other than decisions: pausing, resuming and refining a run, and sending it events.

They depend only on the log, so that all runs of one script get the same.

1. An event that a call waits for is sent twice with one id; another one with the same name and a new id follows, which
   ends the next wait for that name.
2. A sleep of more than a minute is ended by a refinement, a message or a request to wake the run, in turn. Each
   refinement is sent twice with one id.
3. The run is paused after every third LLM reply: for one second, or until somebody resumes it, in turn.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.core.log.events import DormancyBegan, LLMReplied, RunPaused, RunResumed, ToolCallFinished
from holdfast.core.tools.triggers import EventTrigger, deadline
from holdfast.testing.kill_matrix.audit import RecordedLog

REPLIES = 3
"""LLM replies from one pause to the next."""

REFINEMENTS = 20
"""The most refinements sent to a run; a run accepts 50."""

SHORT = timedelta(minutes=1)
"""Shorter sleeps end by themselves."""


class Interventions:
    """Acts on one run, by signals, which need no worker.

    Args:
        client: A client of the server.
        log: The run's log.
        published: Names of events that another sender provides.
    """

    def __init__(self, client: Client, log: RecordedLog, *, published: Collection[str] = ()) -> None:
        self._client = client
        self._log = log
        self._published = published
        self._awakened: set[int] = set()
        self._resumed: set[int] = set()
        self._paused_at = 0
        self._turns = 0
        self._pauses = 0
        self.ending = False
        """Whether to only end waits, without new pauses and extra events."""
        self.events: set[str] = set()
        """The ids of events that Temporal has accepted."""
        self.refinements: set[str] = set()
        """The ids of refinements that Temporal has accepted."""

    async def act(self) -> None:
        """Send the interventions that are due, by the last refresh of the log."""
        if self._log.closed:
            return
        try:
            await self._pause_or_resume()
            for wait in self._open_waits():
                await self._awaken(wait)
                self._awakened.add(wait.number)
        except RPCError:
            return  # the server is unavailable, or the run has ended; sending it again later is harmless

    async def _pause_or_resume(self) -> None:
        last = next((event for event in reversed(self._log.events) if isinstance(event, RunPaused | RunResumed)), None)
        if isinstance(last, RunPaused):
            if last.until is None and last.position not in self._resumed:
                await self._signal("resume", {"by": "alice"})
                self._resumed.add(last.position)
            return
        replies = sum(isinstance(event, LLMReplied) for event in self._log.events)
        if replies and replies >= self._paused_at + REPLIES and not self.ending:
            end = {} if self._pauses % 2 else {"seconds": 1}
            await self._signal("pause", {"by": "alice", "reason": f"pause {self._pauses}", **end})
            self._paused_at, self._pauses = replies, self._pauses + 1

    def _open_waits(self) -> list[DormancyBegan]:
        """Return the waits that do not end by themselves, and for which nothing was sent yet."""
        ended = {event.number for event in self._log.events if isinstance(event, ToolCallFinished)} | self._awakened
        waits = [event for event in self._log.events if isinstance(event, DormancyBegan) and event.number not in ended]
        ends = [(wait, deadline(wait.trigger)) for wait in waits]
        return [wait for wait, end in ends if end is None or end > wait.at + SHORT]

    async def _awaken(self, wait: DormancyBegan) -> None:
        name = f"{self._log.thread}-{wait.number}"
        if isinstance(wait.trigger, EventTrigger):
            if wait.trigger.event not in self._published:
                await self._send_events(wait.trigger.event, name)
            return
        actions = [self._say, self._wake]
        if len(self.refinements) < REFINEMENTS:
            actions.insert(0, self._refine)
        await actions[self._turns % len(actions)](name)
        self._turns += 1

    async def _send_events(self, event: str, name: str) -> None:
        for id in (name, name, *(() if self.ending else (f"{name}-next",))):
            await self._signal("wake", {"event": event, "id": id, "data": {"id": id}, "by": "ci"})
            self.events.add(id)

    async def _refine(self, name: str) -> None:
        for _ in range(2):
            refinement = {"kind": "narrow", "text": f"Skip what {name} is about.", "by": "alice", "id": name}
            await self._signal("refine", refinement)
            self.refinements.add(name)

    async def _say(self, name: str) -> None:
        await self._signal("say", {"message": f"It is time, {name}.", "by": "bob"})

    async def _wake(self, name: str) -> None:
        await self._signal("wake", {"by": "bob", "reason": name})

    async def _signal(self, name: str, payload: dict[str, Any]) -> None:
        await self._client.get_workflow_handle(self._log.thread).signal(name, payload)
