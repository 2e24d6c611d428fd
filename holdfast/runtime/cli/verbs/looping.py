"""Verbs on loops."""

from typing import Any

from rich.text import Text

from holdfast.loop.state import LoopInput, Steering
from holdfast.runtime.cli.exits import FAILED, OK
from holdfast.runtime.cli.loop_screens import iteration_line, loop_screen
from holdfast.runtime.cli.text import command
from holdfast.runtime.cli.verbs.acting import Acting
from holdfast.runtime.client.loops import find_loop, follow_loop, loop_state, start_loop, steer
from holdfast.runtime.client.threads import Threads


class Looping(Acting):
    """Starts, steers and shows loops."""

    async def loop(self, given: dict[str, Any], *, name: str | None, by: str | None, wait: bool) -> int:
        """Start a loop, and with `wait` stay until it is done or cannot go on by itself."""
        threads = await self._connect(name)
        loop = LoopInput.model_validate({**given, "by": self._name(by), "by_proven": self._is_own(self._name(by))})
        started = await start_loop(threads, loop, name=name)
        if wait:
            return await self._wait_for_loop(threads, started.thread)
        link = self._link(threads, started.thread, started.run_id)
        words = Text.assemble(
            "Started ",
            (started.thread, "bold"),
            f"\n  {command('show', started.thread)}",
            f"\n  {link}" if link else "",
        )
        told = {"thread": started.thread, "run_id": started.run_id, "status": "running", "ui": link}
        self._output.result(told, words)
        return OK

    async def steer(self, name: str, what: Steering, *, by: str | None, reason: str) -> int:
        """Pause a loop, or let it go on."""
        threads = await self._connect(name)
        return self._acted(name, await steer(threads, name, what, by=self._name(by), reason=reason))

    async def retry(self, thread: str, *, by: str | None, reason: str) -> int:
        """Let a blocked run or loop go on."""
        threads = await self._connect(thread)
        if await find_loop(threads, thread):
            return await self.steer(thread, "retry", by=by, reason=reason)
        return await super().retry(thread, by=by, reason=reason)

    async def show(self, thread: str, *, at: int | None = None) -> int:
        """Where a thread or a loop is."""
        threads = await self._connect(thread)
        if (found := await find_loop(threads, thread)) is None:
            return await super().show(thread, at=at)
        link = self._link(threads, found.id, found.run_id)
        state = await loop_state(threads, found)
        self._output.result({**state, "ui": link}, loop_screen(state, ui=link))
        return OK

    async def _wait_for_loop(self, threads: Threads, name: str) -> int:
        told: set[tuple[int, str | None]] = set()
        state: dict[str, Any] = {}
        with self._output.err.status(f"{name} is running"):
            async for state in follow_loop(threads, name):
                for each in state["iterations"]:
                    if (each["number"], each["outcome"]) not in told:
                        told.add((each["number"], each["outcome"]))
                        self._output.progress(iteration_line(each))
        await self.show(name)
        return OK if state["status"] == "completed" else FAILED
