"""The wheel without a project: the example without a catalog, and the names that it must not take."""

import subprocess
from pathlib import Path

import pytest

from tests.package.installation import SECONDS, Installation


def test_the_example_is_there_without_a_catalog(developed: Installation, tmp_path: Path) -> None:
    """`holdfast worker --dev` in an empty folder offers the release agent, with a scripted LLM."""
    with developed.worker("--dev", folder=tmp_path) as printed:
        assert "agents: release" in printed
        doctor = developed.holdfast("doctor", folder=tmp_path)
        assert "missing" not in doctor.stdout, doctor.stdout


def test_no_other_package_loses_its_name(clean: Installation, tmp_path: Path) -> None:
    """Beside `llama-index-workflows`, which has a top-level `workflows`, each is imported by its own name."""
    code = "import workflows, holdfast.workflows, holdfast.testing; print(workflows.Workflow.__module__)"
    ran = clean.run(clean.python, "-c", code, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "workflows.workflow\n"), ran.stderr
    for name in ("activities", "examples", "worker", "starter", "gateway"):
        assert clean.run(clean.python, "-c", f"import {name}", folder=tmp_path).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["release", "loop"])
def test_the_demos_run_where_holdfast_is_installed(clean: Installation, tmp_path: Path, demo: str) -> None:
    """Both demos succeed in an empty folder."""
    ran = subprocess.run(
        [clean.python, "-m", f"holdfast.examples.{demo}.demo"],
        cwd=tmp_path,
        env=clean.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "starter.py" not in ran.stdout
