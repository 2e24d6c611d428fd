"""The verbs: each reads or changes threads, writes what came of it, and returns the exit code.

JSON goes by the contract in the README; what people read may be worded anew at any time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text
from temporalio.client import WorkflowExecutionDescription
from temporalio.runtime import Runtime, TelemetryConfig

from holdfast.contracts import SEARCH_ATTRIBUTES
from holdfast.errors import ServerUnreachable
from holdfast.runtime import decisions
from holdfast.runtime.cli.event_lines import PROGRESS, event_line, message_text, running_calls
from holdfast.runtime.cli.exits import FAILED, OK, REFUSED, UNREACHABLE
from holdfast.runtime.cli.output import Output
from holdfast.runtime.cli.screens import list_screen, request_screen, show_screen
from holdfast.runtime.cli.text import command, visible
from holdfast.runtime.cli.ui import ui_base, ui_link
from holdfast.runtime.client import connect, connect_config
from holdfast.runtime.following import follow
from holdfast.runtime.listing import all_pending, overview
from holdfast.runtime.runs import retrying
from holdfast.runtime.settings import Settings
from holdfast.runtime.threads import CLOSED, JSON, Threads, check_task, check_thread_id

RUN_EVENTS = 200
"""How many events `show` looks back over to name the calls under way."""


class Verbs:
    """One invocation of the CLI.

    Args:
        settings: From the environment.
        environ: The environment, for Temporal's own settings.
        output: Where to write.
        root: The folder of `starter.py`.
        debug: Let Temporal's client log.
    """

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], *, output: Output, root: Path, debug: bool
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._output = output
        self._root = root
        self._debug = debug
        self._config = connect_config(environ, home=settings.home)

    async def start(
        self, task: str, *, agent: str | None, thread: str | None, workspace: str | None, wait: bool
    ) -> int:
        """Start a run, and with `wait` stay until it ends."""
        check_task(task)
        if thread is not None:
            check_thread_id(thread)
        threads = await self._connect()
        started = await threads.start(task, agent=agent, thread=thread, workspace=workspace)
        state = await threads.loaded(started.thread)
        if state is None:
            self._output.note(
                f"No worker has picked it up yet; start one with `python worker.py --dev` "
                f"(task queue {self._settings.task_queue!r})."
            )
        if wait:
            return await self._wait(threads, started.thread)
        status = state["status"] if state else "running"
        link = self._link(threads, started.thread, started.run_id)
        words = Text.assemble(
            "Started ",
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

    async def show(self, thread: str) -> int:
        """Where a thread is."""
        threads = await self._connect(thread)
        found = await threads.runs.describe(thread)
        silence: list[str] = []
        try:
            state = await threads.state(thread, found=found, note=silence.append)
            tail = threads.events(thread, after=max(-1, state["events"] - RUN_EVENTS))
            calm = silence or state["status"] in CLOSED
            running = [] if calm else running_calls([event async for event in tail])
        except ServerUnreachable:
            self._output.note(self._from_temporal(threads, found))
            raise
        for words in silence:
            self._output.note(f"{self._from_temporal(threads, found)}\n{visible(words)}")
        self._show(threads, state, found, running=running)
        return OK

    async def list(self, *, status: str | None, limit: int) -> int:
        """Threads, newest first."""
        threads = await self._connect()
        rows = await overview(threads, status=status, limit=limit)
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
        if following:
            events = follow(threads, thread, after=after, note=self._output.note)
        else:
            found = await threads.runs.describe(thread)
            events = threads.events(thread, after=after, found=found, note=self._silent)
        async for event in events:
            self._output.result(event, None if self._output.as_json else event_line(event))
        return OK

    async def transcript(self, thread: str) -> int:
        """What the LLM is sent."""
        threads = await self._connect(thread)
        async for message in threads.messages(thread, note=self._silent):
            self._output.result(message, None if self._output.as_json else message_text(message))
        return OK

    async def pending(self, thread: str | None) -> int:
        """Open requests, of one thread or of all."""
        threads = await self._connect(thread)
        requests, unanswered = await all_pending(threads) if thread is None else (await threads.pending(thread), [])
        for request in requests:
            self._output.result(request, None if self._output.as_json else request_screen(request))
        if not requests and not unanswered and not self._output.as_json:
            self._output.note("Nothing waits for a decision.")
        for each in unanswered:
            self._output.note(f"{visible(each.thread)}: {each.error}")
        return UNREACHABLE if unanswered else OK

    async def decide(self, thread: str, payload: JSON) -> int:
        """Decide a request: approve, deny, or reconcile."""
        threads = await self._connect(thread)
        decided = await decisions.decide(threads, thread, payload)
        return self._decided(f"request {payload['request']} of {thread}", decided)

    async def retry(self, thread: str, *, by: str, reason: str) -> int:
        """Let a blocked run go on."""
        threads = await self._connect(thread)
        return self._acted(thread, await decisions.retry(threads, thread, by=by, reason=reason))

    async def cancel(self, thread: str) -> int:
        """Ask a run to stop."""
        threads = await self._connect(thread)
        return self._acted(thread, await decisions.cancel(threads, thread))

    async def watch(self, thread: str, *, by: str, live: bool) -> int:
        """Show a run until it ends; without a terminal, its log."""
        if not live or self._output.as_json:
            return await self.log(thread, following=True, after=-1)
        from holdfast.runtime.cli.watch import watch

        threads = await self._connect(thread)
        await threads.runs.describe(thread)
        if not await watch(threads, thread, console=self._output.out, by=by):
            self._output.note(f"Left {visible(thread)}; the run goes on.")
            return OK
        return await self.show(thread)

    async def doctor(self) -> int:
        """Say what is there and what is missing."""
        from holdfast.runtime.cli.doctor import examine, exit_code, report

        checks = await examine(self._settings, self._config_with_runtime(), root=self._root)
        code = exit_code(checks)
        found = [
            {"name": each.name, "status": each.status, "detail": each.detail, "mend": each.mend} for each in checks
        ]
        self._output.result({"ok": code == OK, "checks": found}, report(checks))
        return code

    async def _wait(self, threads: Threads, thread: str) -> int:
        """Stay until the run ends, telling what happens on the way."""
        with self._output.err.status(f"{thread} is running"):
            async for event in follow(threads, thread, patient=True, note=self._output.note):
                if event["type"] in PROGRESS:
                    self._output.progress(event_line(event))
                if event["type"] in ("approval_requested", "reconcile_requested"):
                    for request in await threads.pending(thread):
                        if request["request"] == event["request"]["request"]:
                            self._output.note(request_screen(request))
                if event["type"] == "run_parked":
                    self._output.note(f"It is blocked. Mend the cause, then: {command('retry', thread)}")
        found = await threads.runs.describe(thread)
        state = await threads.state(thread, found=found)
        self._show(threads, state, found, running=[])
        return OK if state["status"] == "completed" else FAILED

    def _show(self, threads: Threads, state: JSON, found: WorkflowExecutionDescription, *, running: Any) -> None:
        link = self._link(threads, found.id, found.run_id)
        screen = show_screen(state, running=running, retrying=retrying(found), ui=link)
        self._output.result({**state, "ui": link}, screen)

    def _decided(self, what: str, decided: decisions.Decided) -> int:
        words = decided.explanation or decided.outcome
        told = {"outcome": decided.outcome, "explanation": decided.explanation}
        self._output.result(told, Text(visible(f"{what}: {words}")) if decided.counts else None)
        if not decided.counts:
            self._output.note(f"starter.py: {visible(what)}: {decided.outcome.replace('_', ' ')}: {visible(words)}")
        return OK if decided.counts else REFUSED

    def _acted(self, thread: str, decided: decisions.Decided) -> int:
        self._output.result({"outcome": decided.outcome}, Text(f"{visible(thread)}: {decided.explanation}"))
        return OK if decided.counts else REFUSED

    def _silent(self, words: str) -> None:
        """Say beside what is settled that nobody answers for the rest."""
        self._output.note(visible(words))

    def _from_temporal(self, threads: Threads, found: WorkflowExecutionDescription) -> str:
        """What is known of a thread that no worker answers for."""
        began = found.start_time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        status = found.status.name.lower() if found.status else "unknown"
        ours = {
            pair.key.name: pair.value for pair in found.typed_search_attributes if pair.key.name in SEARCH_ATTRIBUTES
        }
        known = "".join(f", {name} {value}" for name, value in ours.items())
        link = self._link(threads, found.id, found.run_id)
        words = f"Temporal says: {visible(found.id)} is {status}, since {began}{known}" + (f"\n{link}" if link else "")
        return "\n".join(
            [words, *(f"{each.activity}: attempt {each.attempt}, {each.reason}" for each in retrying(found))]
        )

    async def _connect(self, thread: str | None = None) -> Threads:
        if thread is not None:
            check_thread_id(thread)
        client = await connect(self._config_with_runtime())
        settings = self._settings
        return Threads(client, task_queue=settings.task_queue, answer_within=settings.answer_seconds)

    def _config_with_runtime(self) -> dict[str, Any]:
        # Temporal's client would tell of each retry on stderr, in its own words; we say what came of it.
        quiet = {} if self._debug else {"runtime": Runtime(telemetry=TelemetryConfig(logging=None))}
        return {**self._config, **quiet}

    def _link(self, threads: Threads, thread: str, run_id: str) -> str | None:
        base = ui_base(self._config, self._settings)
        return ui_link(base, namespace=threads.runs.client.namespace, thread=thread, run_id=run_id)
