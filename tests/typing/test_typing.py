"""Type checkers find Holdfast's types in the wheel, and users' mistakes with them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package.installation import Installation

HERE = Path(__file__).parent


def check(installation: Installation, folder: Path, *names: str, options: tuple[str, ...] = ()) -> str:
    """Type-check a user's files against the installed wheel; return mypy's output."""
    for name in names:
        shutil.copy(HERE / name, folder)
    target = ["--python-executable", installation.python, "--config-file=", f"--cache-dir={folder / 'cache'}"]
    command = [sys.executable, "-m", "mypy", "--strict", *target, *options, *names]
    ran = subprocess.run(command, cwd=folder, env=installation.environ, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_users_project_is_checked(developed: Installation, tmp_path: Path) -> None:
    """A catalog with stores and tests passes in strict mode; each mistake gives an error of the expected kind."""
    output = check(developed, tmp_path, "right_uses.py", "wrong_uses.py")
    assert output == "Success: no issues found in 2 source files\n"


@pytest.mark.slow
def test_a_users_project_has_no_any(developed: Installation, tmp_path: Path) -> None:
    """Each expression has a type of its own; but `Tool` alone is any tool, decorators and providers accept any, and a
    type checker has no type for the value of a union that is given as an argument.
    """
    output = check(developed, tmp_path, "right_uses.py", options=("--disallow-any-expr",))
    lines = (HERE / "right_uses.py").read_text().splitlines()
    untyped = {lines[int(line.split(":")[1]) - 1] for line in output.splitlines() if ": error:" in line}
    generic = ("@tool", "@resource", "    resources=[")
    assert all(
        line.startswith(generic) or "workspace_tools()" in line or "result=int | str" in line for line in untyped
    ), output
    assert "error" in output  # the option works
