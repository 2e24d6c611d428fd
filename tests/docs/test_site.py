"""The site builds: `make docs`, without a network and without a warning."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

VENV = ROOT / ".venv-docs"
LOCK = ROOT / "requirements/docs.lock"


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    """Each page is built, and the entry leads to the first one."""
    installed = VENV / "installed.lock"
    if not installed.exists() or installed.read_bytes() != LOCK.read_bytes():
        pytest.skip("there is no .venv-docs with requirements/docs.lock: `make docs` makes it")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "-c", "docs"]
    ran = subprocess.run(
        [VENV / "bin/python", "-m", "sphinx", *options, "-d", tmp_path / "cache", ".", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    assert (tmp_path / "site/docs/index.html").exists()
    assert 'href="docs/index.html"' in (tmp_path / "site/index.html").read_text()
