"""The current folder has modules with the names of ours, and of the catalog."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
HOSTILE = "from pathlib import Path\nPath({marker!r}).write_text('imported')\nraise SystemExit('taken over')\n"
TRUSTED = """
from pathlib import Path
from holdfast.core.agents.catalog import Catalog
Path({marker!r}).write_text("imported")
catalog = Catalog(agents=())
"""
TAKEN = ("holdfast", "workflows", "activities", "examples", "company_agents", "typer", "temporalio", "sitecustomize")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a cloned repository whose modules take the names that a command imports."""
    folder = tmp_path / "clone"
    for name in TAKEN:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(HOSTILE.format(marker=str(tmp_path / "hostile")))
    return folder


def command(program: str, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one of the programs in `cwd`, out of reach of any server."""
    return subprocess.run(
        [sys.executable, str(REPOSITORY / program), *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOLDFAST_HOME": str(cwd.parent / "home"), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.extended
def test_a_folder_does_not_replace_an_installed_catalog(hostile: Path, tmp_path: Path) -> None:
    """The current folder replaces neither the catalog's module nor Holdfast's own: it is searched last."""
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    marker = tmp_path / "loaded"
    (trusted / "company_agents.py").write_text(TRUSTED.format(marker=str(marker)))
    named = {"HOLDFAST_CATALOG": "company_agents:catalog", "PYTHONPATH": str(trusted)}

    done = command("starter.py", "recall", "colours", cwd=hostile, **named)

    assert marker.exists(), done.stderr  # the catalog was loaded, so the attack had its chance
    assert not (tmp_path / "hostile").exists(), done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("program", ["gateway.py", "worker.py", "starter.py"])
def test_without_a_catalog_nothing_of_a_folder_is_imported(hostile: Path, tmp_path: Path, program: str) -> None:
    """A command in a cloned repository executes none of its code."""
    arguments = {"starter.py": ["recall", "colours"], "gateway.py": [], "worker.py": []}[program]

    done = command(program, *arguments, cwd=hostile, TEMPORAL_ADDRESS="127.0.0.1:1")

    assert done.returncode in (2, 4), done.stderr
    assert not (tmp_path / "hostile").exists(), done.stderr
