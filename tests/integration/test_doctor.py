"""`doctor` beside a real worker reports the faults that a newcomer meets, each with the next step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exits import FAILED, UNREACHABLE, USAGE
from holdfast.config.project import ENV, TOML
from tests.support.processes import ROOT, WorkerProcess

FOREIGN = ("HOLDFAST_", "TEMPORAL_", "OPENAI_", "DATABASE_URL")


def doctor(folder: Path, **given: str) -> tuple[int, dict[str, Any]]:
    """Run `doctor` in a folder; return the exit code and the checks by name."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)} | given
    command = [sys.executable, str(ROOT / "starter.py"), "doctor", "--json"]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout, ran.stderr
    return ran.returncode, {check["name"]: check for check in json.loads(ran.stdout)["checks"]}


@pytest.mark.slow
def test_doctor_reports_what_is_wrong_with_a_worker(tmp_path: Path) -> None:
    """`doctor` detects a mismatched catalog, a missing worker, a foreign stack, a dead server and a faulty file."""
    project = tmp_path / "project"
    project.mkdir()
    (project / TOML).write_text('catalog = "agents:catalog"\n')
    (project / "agents.py").touch()
    worker = WorkerProcess(tmp_path / "home", HOLDFAST_CATALOG="holdfast.examples.loop.catalog:catalog")
    worker.start()
    try:
        here = {"HOLDFAST_HOME": str(worker.home), "HOLDFAST_TASK_QUEUE": worker.task_queue}
        code, checks = doctor(project, **here)
        assert (code, checks["catalog"]["status"]) == (FAILED, "missing")
        assert "agents:catalog is named here" in checks["catalog"]["detail"]
        assert "offers builder from holdfast.examples.loop.catalog:catalog" in checks["catalog"]["detail"]
        assert "--dev" in checks["catalog"]["fix"]
        assert (checks["llm"]["status"], "OPENAI_API_KEY" in checks["llm"]["fix"]) == ("missing", True)
        code, checks = doctor(tmp_path, **here)
        assert (code, "offers builder" in checks["catalog"]["detail"]) == (0, True)
        code, checks = doctor(tmp_path, **here | {"HOLDFAST_TASK_QUEUE": "nobody"})
        assert (code, checks["workers"]["status"]) == (FAILED, "missing")
        assert "--dev" in checks["workers"]["fix"]
        code, checks = doctor(project, HOLDFAST_HOME=str(tmp_path / "wrong"))
        assert code in (FAILED, UNREACHABLE)
        assert checks["stack"]["status"] == "missing"
        assert "HOLDFAST_HOME=" in checks["stack"]["fix"]
    finally:
        worker.stop()
    code, checks = doctor(tmp_path, **here)
    assert (code, checks["temporal"]["status"], "--dev" in checks["temporal"]["fix"]) == (UNREACHABLE, "missing", True)
    (project / ENV).write_text("OPENAI_API_KEY=hunter2\n")
    (project / ENV).chmod(0o644)
    code, checks = doctor(project)
    assert (code, list(checks)) == (USAGE, ["settings"])
    assert "chmod 600" in checks["settings"]["detail"]
    assert "hunter2" not in str(checks)
