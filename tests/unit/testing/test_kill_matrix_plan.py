"""A worker stops exactly at the planned points; the supervisor can kill it there, or resume it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from holdfast.testing.kill_matrix.plan import Plan, read_stops, write_plan

WORKER = """
import sys
from pathlib import Path
from holdfast.testing.kill_matrix.plan import Stopper
for folder in sys.argv[1:]:
    stopper = Stopper(Path(folder))
    for place in ("1", "1", "2", "3"):
        stopper.reached("before verdict_given", place)
        stopper.reached("after verdict_given", place)
"""
BEFORE, AFTER = "before verdict_given", "after verdict_given"


@pytest.mark.extended
def test_a_worker_stops_where_the_plan_says(tmp_path: Path) -> None:
    """It stops once at each point of the boundary, after `skip` others, and at most `most` times."""
    cases: dict[str, tuple[Plan | None, list[tuple[str, str]]]] = {
        "each": (Plan(boundaries=(AFTER,)), [(AFTER, "1"), (AFTER, "2"), (AFTER, "3")]),
        "some": (Plan(skip=3, most=2), [(AFTER, "1"), (BEFORE, "2")]),
        "none": (None, []),
    }
    folders = [tmp_path / name for name in cases]
    for folder, (plan, _) in zip(folders, cases.values(), strict=True):
        folder.mkdir()
        write_plan(folder, plan)
    process = subprocess.Popen([sys.executable, "-c", WORKER, *map(str, folders)])
    handled, deadline = 0, time.monotonic() + 300
    while process.poll() is None:
        assert time.monotonic() < deadline
        stops = sum(len(read_stops(folder)) for folder in folders)
        if stops > handled and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
            handled += 1
            process.send_signal(signal.SIGCONT)
        time.sleep(0.005)
    assert process.returncode == 0
    for folder, (_, expected) in zip(folders, cases.values(), strict=True):
        assert [(stop.boundary, stop.place) for stop in read_stops(folder)] == expected


def test_a_new_plan_clears_the_recorded_stops(tmp_path: Path) -> None:
    """A point where a worker stopped under one plan can stop it again under the next."""
    (tmp_path / "stops").write_text('{"boundary": "before effect", "place": "1", "pid": 1}\n')
    assert len(read_stops(tmp_path)) == 1
    write_plan(tmp_path, Plan())
    assert read_stops(tmp_path) == []
