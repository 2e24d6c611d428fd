"""Verbs that read threads."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionDescription

from holdfast.errors import EventsMissing, RecordUnavailable, ServerUnreachable
from holdfast.runtime.audit.verify import verify
from holdfast.runtime.cli.event_lines import event_line, message_text, running_calls
from holdfast.runtime.cli.exits import FAILED, OK, UNREACHABLE
from holdfast.runtime.cli.prompt_screens import prompt_screen
from holdfast.runtime.cli.screens import list_screen, request_screen, show_screen, verify_screen
from holdfast.runtime.cli.text import visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.client.follow import follow
from holdfast.runtime.client.listing import list_pending, list_threads
from holdfast.runtime.client.prompts import prompt_of
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.config.policy_file import load_policy
from holdfast.runtime.reading.record import Evidence, call_store
from holdfast.runtime.reading.runs import retrying
from holdfast.runtime.reading.states import CLOSED

RUN_EVENTS = 200
"""How many events `show` looks back over to name the calls under way."""


class Looking(Invocation):
    """Reads threads."""

    async def show(self, thread: str, *, at: int | None = None) -> int:
        """Where a thread is, or was right after one of its events."""
        threads = await self._connect(thread)
        found = await threads.reader.find(thread)
        if found is None:
            self._forgotten(thread)
        if at is not None:
            state = await threads.state_at(thread, at, note=self._silent)
            self._show(threads, {**state, "at": at}, found, running=[])
            return OK
        silence: list[str] = []
        try:
            state = await threads.state(thread, found=found, note=silence.append)
            calm = found is None or silence or state["status"] in CLOSED
            running = [] if calm else await _running(threads, thread, state)
        except ServerUnreachable:
            if found:
                self._output.note(self._from_temporal(threads, found))
            raise
        for words in silence:
            about = f"{self._from_temporal(threads, found)}\n" if found else ""
            self._output.note(f"{about}{visible(words)}")
        self._show(threads, state, found, running=running)
        return OK

    async def list(self, *, status: str | None, limit: int) -> int:
        """Threads, newest first."""
        threads = await self._connect()
        rows = await list_threads(threads, status=status, limit=limit)
        if self._output.as_json:
            for row in rows:
                self._output.result({name: row[name] for name in ("thread", "agent", "status", "step")})
        else:
            self._output.result(rows, list_screen(rows))
            if not rows:
                self._output.note("No threads" + (f" with status {status}." if status else " yet."))
            elif len(rows) == limit:
                self._output.note(f"There may be more than these {limit}; --limit shows more.")
        return OK

    async def log(self, thread: str, *, following: bool, after: int) -> int:
        """Events of a thread."""
        threads = await self._connect(thread)
        found = await threads.reader.find(thread)
        if found is None:
            self._forgotten(thread)
        if following:
            events = follow(threads, thread, after=after, note=self._output.note)
        else:
            events = threads.events(thread, after=after, found=found, note=self._silent)
        async for event in events:
            self._output.result(event, None if self._output.as_json else event_line(event))
        return OK

    async def transcript(self, thread: str, *, active: bool) -> int:
        """What was said, or what the LLM is sent now."""
        threads = await self._connect(thread)
        async for message in threads.messages(thread, active=active, note=self._silent):
            self._output.result(message, None if self._output.as_json else message_text(message))
        return OK

    async def prompt(self, thread: str, *, raw: bool) -> int:
        """What the LLM would be sent next."""
        threads = await self._connect(thread)
        found = await threads.reader.find(thread)
        if found is None:
            self._forgotten(thread)
        prompt = await prompt_of(threads, thread, found=found, note=self._silent)
        if raw:
            # Byte for byte, but for a terminal, which some of the bytes would act on.
            body = visible(prompt.body.decode()).encode() if sys.stdout.isatty() else prompt.body
            sys.stdout.buffer.write(body + b"\n")
            sys.stdout.flush()
            return OK
        view = prompt.view()
        self._output.result(view, None if self._output.as_json else prompt_screen(prompt, view))
        return OK

    async def pending(self, thread: str | None) -> int:
        """Open requests, of one thread or of all."""
        threads = await self._connect(thread)
        if thread is None:
            requests, unanswered = await list_pending(threads)
        else:
            requests, unanswered = await threads.pending(thread), []
        for request in requests:
            self._output.result(request, None if self._output.as_json else request_screen(request))
        if not requests and not unanswered and not self._output.as_json:
            self._output.note("Nothing waits for a decision.")
        for each in unanswered:
            self._output.note(f"{visible(each.thread)}: {each.error}")
        return UNREACHABLE if unanswered else OK

    async def watch(self, thread: str, *, by: str | None, key: Path | None, live: bool) -> int:
        """Show a run until it ends; without a terminal, its log."""
        if not live or self._output.as_json:
            return await self.log(thread, following=True, after=-1)
        from holdfast.runtime.cli.watch import watch

        private = self._private_key(key)
        threads = await self._connect(thread)
        await threads.reader.find(thread)
        if not await watch(threads, thread, console=self._output.out, by=self._name(by), private=private):
            self._output.note(f"Left {visible(thread)}; the run goes on.")
            return OK
        return await self.show(thread)

    async def verify(self, thread: str, *, keys: Path | None, artifacts: bool) -> int:
        """Whether a thread is what was recorded: events, decisions, effects and artifacts."""
        trusted = load_policy(keys) if keys else None
        threads = await self._connect(thread)
        evidence = await self._evidence()
        if evidence and not artifacts:
            evidence = replace(evidence, artifacts=None)
        found = await verify(threads, thread, evidence=evidence, trusted=trusted)
        told = {"from" if name == "sources" else name: value for name, value in asdict(found).items()}
        self._output.result(told, verify_screen(found))
        return OK if found.ok else FAILED

    async def _evidence(self) -> Evidence | None:
        """Ledger and artifacts; None where the database does not answer, which the record will say."""
        try:
            return (await call_store(self._record.open())).evidence if self._record else None
        except RecordUnavailable:
            return None

    def _show(self, threads: Threads, state: JSON, found: WorkflowExecutionDescription | None, *, running: Any) -> None:
        link = self._link(threads, found.id, found.run_id) if found else None
        tried = retrying(found) if found and "at" not in state else []
        screen = show_screen(state, running=running, retrying=tried, ui=link)
        self._output.result({**state, "ui": link}, screen)


async def _running(threads: Threads, thread: str, state: JSON) -> Sequence[str]:
    """The calls under way."""
    after = max(-1, state["events"] - RUN_EVENTS)
    try:
        return running_calls([event async for event in threads.events(thread, after=after)])
    except EventsMissing as error:  # of earlier Temporal runs; a call under way was started by this one
        after = (error.stop or state["events"]) - 1
        return running_calls([event async for event in threads.events(thread, after=after)])
