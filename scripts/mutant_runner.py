"""A pytest plugin that runs the tests which reach a mutant with it. For `scripts/mutants.py`."""

import builtins
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

SECONDS = 60.0
"""CPU time of the tests of one mutant, as they took without it."""

UNREACHED = "unreached"
"""The outcome of a mutant that no test reaches, so that it may be in code that runs on import."""

TERMINAL = os.dup(1)


def say(text: str) -> None:
    """Print to the terminal, although pytest's own lines go nowhere."""
    os.write(TERMINAL, f"{text}\n".encode())


class Runner:
    """A pytest plugin that runs the collected tests in forked processes: once without a mutant, then with each."""

    def __init__(self, mutants: Sequence[str], jobs: int, folder: Path) -> None:
        self.hits: dict[str, list[int]] = {}
        self.costs: dict[str, float] = {}
        self.outcomes: dict[int, str] = {}
        self.killers: dict[int, str] = {}
        self._mutants, self._jobs, self._folder = mutants, jobs, folder
        self._active = 0
        self._reached: set[int] = set()
        self._failed = False
        builtins.mutant_is_on = self.is_on  # type: ignore[attr-defined]

    def is_on(self, number: int) -> bool:
        """Note that a test reaches a mutant, and return whether it is switched on."""
        self._reached.add(number)
        return number == self._active

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of the current test."""
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without a mutant, then with each."""
        files = sorted({item.path for item in session.items}, key=str)
        parts: list[list[pytest.Item]] = [[] for _ in range(self._jobs)]
        for item in session.items:
            parts[files.index(item.path) % self._jobs].append(item)
        for _, part in forked([partial(self._reach, part) for part in parts], self._jobs, self._folder, None):
            for test, (reached, cost) in part.items() if isinstance(part, dict) else ():
                self.hits[test], self.costs[test] = reached, cost
        say(f"{len(self.hits):,} of {len(session.items):,} tests pass, in {sum(self.costs.values()):.0f} s of CPU time")
        items = {item.nodeid: item for item in session.items}
        tasks = []
        for number in range(1, len(self._mutants) + 1):
            reaching = [items[name] for name, reached in self.hits.items() if number in reached]
            reaching.sort(key=self._order)
            tasks.append(partial(self._kill, number, reaching))
        for place, result in forked(tasks, self._jobs, self._folder, 10 * SECONDS):
            outcome, by = result if isinstance(result, list) else ("timed out", "")
            self.note(place + 1, outcome, by)
        return True

    def note(self, number: int, outcome: str, by: str) -> None:
        """Keep the outcome of a mutant, and print it: the next one may take minutes."""
        self.outcomes[number], self.killers[number] = outcome, by
        if outcome != UNREACHED:
            say(f"{outcome:9}  {self._mutants[number - 1]}  ({by})")

    def _reach(self, items: list[pytest.Item]) -> dict[str, tuple[list[int], float]]:
        """Run tests without a mutant; return those that pass, with the mutants that they reach and their CPU time."""
        found = {}
        _own_temporary_folder(items, self._folder)
        for item, following in pairs(items):
            before = time.process_time()
            if not self._fails(item, following):
                found[item.nodeid] = (sorted(self._reached), time.process_time() - before)
        return found

    def _kill(self, number: int, items: list[pytest.Item]) -> tuple[str, str]:
        """Run tests with a mutant until one fails; return the outcome, and the test that failed."""
        self._active, os.environ["MUTANT"] = number, str(number)
        _own_temporary_folder(items, self._folder)
        spent = 0.0
        for item, following in pairs(items):
            if self._fails(item, following):
                item.session._setupstate.teardown_exact(None)
                return "killed", item.nodeid
            if (spent := spent + self.costs[item.nodeid]) > SECONDS:
                item.session._setupstate.teardown_exact(None)
                return "survived", f"{items.index(item) + 1} of {len(items)} tests ran"
        return ("survived", f"{len(items)} tests ran") if items else (UNREACHED, "")

    def _order(self, item: pytest.Item) -> tuple[bool, float]:
        """Return the key by which tests are sorted: those that start no server come first, and cheap ones."""
        return "stack" in getattr(item, "fixturenames", ()), self.costs[item.nodeid]

    def _fails(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self._failed, self._reached = False, set()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return self._failed


def _own_temporary_folder(items: list[pytest.Item], folder: Path) -> None:
    """Give this process a temporary folder of its own: two that make the next of a series at once may fail."""
    for item in items[:1]:
        own = folder / f"temporary-{os.getpid()}"
        own.mkdir()
        item.config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]


def pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Yield each test with the one that follows it."""
    for number, item in enumerate(items, 1):
        yield item, items[number] if number < len(items) else None


def forked(
    tasks: Sequence[Callable[[], Any]], jobs: int, folder: Path, seconds: float | None
) -> Iterator[tuple[int, Any]]:
    """Run each task in a process that is forked from this one; yield its place and what it returns, as they end.

    A task that was ended, or that ended otherwise, returns None.
    """
    context, waiting = multiprocessing.get_context("fork"), list(enumerate(tasks))
    running: dict[int, tuple[ForkProcess, float]] = {}
    files = [folder / f"result-{number}.json" for number in range(len(tasks))]

    def run(task: Callable[[], Any], file: Path) -> None:
        file.write_text(json.dumps(task()))
        os._exit(0)  # without the handlers of the process from which it was forked

    while waiting or running:
        while waiting and len(running) < jobs:
            number, task = waiting.pop(0)
            files[number].unlink(missing_ok=True)
            running[number] = context.Process(target=run, args=(task, files[number])), time.monotonic()
            running[number][0].start()
        for number, (process, since) in list(running.items()):
            process.join(0.05)
            if process.is_alive() and seconds is not None and time.monotonic() - since > seconds:
                process.kill()
            elif not process.is_alive():
                del running[number]
                yield number, json.loads(files[number].read_text()) if files[number].exists() else None
