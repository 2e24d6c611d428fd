"""Run the demos from end to end, as `make` does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil

from holdfast.devstack.processes import command_line

ROOT = Path(__file__).parents[2]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def play_demo(module: str, home: Path, *, seconds: float = 360) -> dict[str, str]:
    """Run a demo and return the facts of its table. It must exit with 0 and leave no process running.

    Args:
        module: `holdfast.examples.release.demo`.
        home: The state folder.
        seconds: The time limit.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "HOLDFAST_"))}
    environ |= {
        "HOLDFAST_HOME": str(home),
        "TEMPORAL_ADDRESS": "nowhere.invalid:1",
        "DATABASE_URL": "postgresql://x",
    }
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert not CONTROL.search(done.stdout)
    (demo,) = (home / "demo").iterdir()
    assert not [process for process in psutil.process_iter() if str(demo) in " ".join(command_line(process))]
    return dict(re.findall(r"^│ [✓·] │ +(.+?) +│ (.+?) +│$", done.stdout, re.MULTILINE))
