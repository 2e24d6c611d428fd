"""Verbs for whoever operates Holdfast."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runtime.cli.exits import OK
from holdfast.runtime.cli.screens import prunable_line
from holdfast.runtime.cli.text import count, visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.client.prune import list_prunable, prune
from holdfast.runtime.encryption.codec import EncryptionCodec
from holdfast.runtime.reading.record import EndedThread, call_store


class Upkeep(Invocation):
    """Keeps things in order."""

    async def replay(
        self, workflows: Sequence[type], *, thread: str | None, files: Sequence[Path], last: int, strict: bool
    ) -> int:
        """Whether today's `workflows` go on with recorded runs: a thread's, those in files, or the latest."""
        from holdfast.runtime.audit.replay import latest_runs, runs_of
        from holdfast.runtime.cli.replay import from_files, replay_all

        if files:
            runs = from_files(files, EncryptionCodec.of(self._settings.encryption_keys))
        elif thread is not None:
            runs = runs_of(await self._connect(thread), thread)
        else:
            runs = latest_runs(await self._connect(), last)
        return await replay_all(runs, workflows, output=self._output, strict=strict, runtime=self._runtime())

    async def prune(self, older_than: timedelta, *, dry_run: bool, ask: bool) -> int:
        """Remove threads that ended before that from the permanent record."""
        if self._record is None:
            raise SettingsError("there is no permanent record to prune: set DATABASE_URL to the one that workers have")
        threads = await self._connect()
        record = await self._record.open()
        found = await call_store(list_prunable(threads.runs, record, older_than=older_than))
        if dry_run or ask:
            for one in found:
                self._pruned(one, removed=False)
        if not found:
            self._output.note("No thread ended that long ago.")
        elif dry_run:
            self._output.note(f"{count(len(found), 'thread')} would be removed.")
        elif not ask or self._agreed(len(found)):
            async for one, removed in prune(threads.runs, record, found):
                if removed and not ask:
                    self._pruned(one, removed=True)
                if not removed:
                    self._output.note(f"{visible(one.thread)} stays: it was continued meanwhile, or is gone.")
        return OK

    async def doctor(self, *, hardened: bool) -> int:
        """Say what is there and what is missing."""
        from holdfast.runtime.cli.doctor import examine, exit_code, report

        checks = await examine(self._settings, self._config_with_runtime(), root=self._root)
        code = exit_code(checks, hardened=hardened)
        found = [
            {"name": each.name, "status": each.status, "detail": each.detail, "mend": each.mend} for each in checks
        ]
        self._output.result({"ok": code == OK, "checks": found}, report(checks))
        return code

    def _pruned(self, one: EndedThread, *, removed: bool) -> None:
        told = {"thread": one.thread, "events": one.events, "bytes": one.bytes, "last_at": one.last_at.isoformat()}
        self._output.result({**told, "removed": removed}, prunable_line(one))

    def _agreed(self, number: int) -> bool:
        what = "this thread" if number == 1 else f"these {number:,} threads"
        words = f"Remove {what} for good: events, effects, artifacts? [y/N] "
        answer = self._output.err.input(words, markup=False, emoji=False)
        agreed = answer.strip().lower() in ("y", "yes")
        if not agreed:
            self._output.note("Nothing was removed.")
        return agreed
