"""With `worker.py --dev --skip-time` and `starter.py skip`, a person tries what happens three weeks later."""

import json
import os
from pathlib import Path

import pytest

from tests.support.forked import Ended, run
from tests.support.processes import WorkerProcess


@pytest.mark.extended
def test_a_person_skips_three_weeks(tmp_path: Path) -> None:
    """A thread that is idle for a month is open after three weeks, and closed after ten more days."""
    worker = WorkerProcess(tmp_path / "home", options=["--skip-time"])
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ = {**kept, "HOLDFAST_HOME": str(worker.home), "HOLDFAST_TASK_QUEUE": worker.task_queue}

    def starter(*words: str) -> Ended:
        return run("starter", words, environ=environ, folder=tmp_path)

    worker.start()
    try:
        assert "every client can skip it" in worker.log
        month = str(30 * 86_400)
        assert starter("start", "hello", "--thread", "later", "--idle-limit", month, "--wait").code in (0, 6)
        skipped = starter("skip", "later", "3w")
        assert (skipped.code, b"UTC for this run" in skipped.out) == (0, True), skipped
        assert json.loads(starter("show", "later", "--json").out)["status"] == "waiting_message"
        ended = starter("skip", "later", "10d")
        assert ended.code == 0, ended
        assert json.loads(starter("show", "later", "--json").out)["status"] == "completed"
    finally:
        assert worker.stop() == 0
