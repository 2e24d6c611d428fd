"""A user's own tests, as printed on the how-to page, in plain pytest with the installed wheel."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, files
from tests.package.installation import Installation

FILES = files(DOCS / "how-to/test-your-agent.md")


def write(folder: Path) -> None:
    """Write the page's files into a folder."""
    for name, code in FILES.items():
        (folder / name).write_text(code, encoding="utf-8")


def test_a_users_agent_is_tested(developed: Installation, tmp_path: Path) -> None:
    """Its tests pass in an empty folder, and leave nothing in it."""
    write(tmp_path)
    ran = developed.run(developed.python, "-m", "pytest", "-q", "-W", "error", "test_support.py", folder=tmp_path)
    assert (ran.returncode, "4 passed" in ran.stdout) == (0, True), ran.stdout
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*FILES, "__pycache__", ".pytest_cache"}


@pytest.mark.slow
def test_a_users_kill_matrix_runs(developed: Installation, tmp_path: Path) -> None:
    """The kill matrix runs from the wheel, with a catalog beside the test."""
    write(tmp_path)
    ran = developed.run(
        developed.python, "-m", "pytest", "-q", "test_kills.py", "-k", "after and effect", folder=tmp_path
    )
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout
