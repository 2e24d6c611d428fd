"""Verbs that start runs and change them."""

from pathlib import Path

from rich.text import Text

from holdfast.authority.follow_ups import WhenBusy
from holdfast.llm.messages import Content
from holdfast.runtime.cli.event_lines import PROGRESS, event_line
from holdfast.runtime.cli.exits import FAILED, OK, REFUSED
from holdfast.runtime.cli.screens import request_screen
from holdfast.runtime.cli.text import command, visible
from holdfast.runtime.cli.verbs.looking import Looking
from holdfast.runtime.client import decisions
from holdfast.runtime.client.follow import follow
from holdfast.runtime.client.messages import say
from holdfast.runtime.client.start_options import check_own_id, check_task
from holdfast.runtime.client.threads import JSON, Started, Threads
from holdfast.runtime.reading.states import CLOSED


class Acting(Looking):
    """Changes runs."""

    async def start(
        self,
        task: Content,
        *,
        agent: str | None,
        thread: str | None,
        workspace: str | None,
        idle_limit: float | None,
        by: str | None,
        wait: bool,
    ) -> int:
        """Start a run or continue a closed thread, and with `wait` stay until it ends or waits for a message."""
        check_task(task)
        if thread is not None:
            check_own_id(thread)
        threads = await self._connect()
        giver = self._spelt(by or self._settings.by or "")
        if not self._is_own(giver):
            self._output.note(
                f"Started for {visible(giver)} by somebody else: it does not reach what is remembered for them."
            )
        started = await threads.start(
            task,
            agent=agent,
            thread=thread,
            workspace=workspace,
            idle_limit=idle_limit,
            by=giver,
            by_proven=self._is_own(giver),
        )
        state = await threads.wait_until_loaded(started.thread)
        if state is None:
            self._output.note(
                f"No worker has picked it up yet; start one with `python worker.py --dev` "
                f"(task queue {self._settings.task_queue!r})."
            )
        if wait:
            return await self._wait(threads, started)
        status = state["status"] if state else "running"
        link = self._link(threads, started.thread, started.run_id)
        words = Text.assemble(
            "Continued " if started.continued else "Started ",
            (started.thread, "bold"),
            f" ({status.replace('_', ' ')})\n",
            f"  {command('watch', started.thread)}",
            f"\n  {link}" if link else "",
        )
        self._output.result({"thread": started.thread, "run_id": started.run_id, "status": status, "ui": link}, words)
        if status == "failed":
            self._output.note(f"The run failed: {visible(state['result'] if state else '')}")
            return FAILED
        return OK

    async def say(self, thread: str, message: Content, *, by: str | None, when_busy: WhenBusy, key: Path | None) -> int:
        """Say something to a run, or let a closed thread go on with it."""
        private, name = self._private_key(key), self._name(by)
        threads = await self._connect(thread)
        said = await say(threads, thread, message, by=name, when_busy=when_busy, private=private)
        told: JSON = {"outcome": said.outcome, "explanation": said.explanation}
        if said.run_id:
            told |= {"run_id": said.run_id}
        words = f"{visible(thread)}: {said.outcome.replace('_', ' ')}: {visible(said.explanation)}"
        self._output.result(told, Text(words) if said.counts else None)
        if not said.counts:
            self._output.note(f"starter.py: {words}")
        return OK if said.counts else REFUSED

    async def retry(self, thread: str, *, by: str | None, reason: str) -> int:
        """Let a blocked run go on."""
        threads = await self._connect(thread)
        return self._acted(thread, await decisions.retry(threads, thread, by=self._name(by), reason=reason))

    async def cancel(self, thread: str) -> int:
        """Ask a run to stop."""
        threads = await self._connect(thread)
        return self._acted(thread, await decisions.cancel(threads, thread))

    def _acted(self, thread: str, decided: decisions.UpdateResult) -> int:
        self._output.result({"outcome": decided.outcome}, Text(f"{visible(thread)}: {decided.explanation}"))
        return OK if decided.counts else REFUSED

    async def _wait(self, threads: Threads, started: Started) -> int:
        """Stay until the run ends or waits for a message, telling what happens on the way."""
        thread, begun = started.thread, False
        with self._output.err.status(f"{thread} is running"):
            async for event in follow(threads, thread, patient=True, note=self._output.note):
                # What a closed thread was through before is not what happens now.
                begun = begun or (event["type"] == "run_started" and event["run_id"] == started.run_id)
                if begun and await self._told(threads, thread, event):
                    break
        found = await threads.runs.describe(thread)
        state = await threads.state(thread, found=found)
        self._show(threads, state, found, running=[])
        return OK if state["status"] in ("completed", "waiting_message") else FAILED

    async def _told(self, threads: Threads, thread: str, event: JSON) -> bool:
        """Tell of an event; returns whether nothing follows unless somebody sends a message."""
        if event["type"] in PROGRESS:
            self._output.progress(event_line(event))
        if event["type"] in ("approval_requested", "reconcile_requested"):
            for request in await threads.pending(thread):
                if request["request"] == event["request"]["request"]:
                    self._output.note(request_screen(request))
        if event["type"] == "run_blocked":
            self._output.note(f"It is blocked. Mend the cause, then: {command('retry', thread)}")
        if event["type"] == "message_awaited":
            return (await threads.state(thread))["status"] in ("waiting_message", *CLOSED)
        return False
