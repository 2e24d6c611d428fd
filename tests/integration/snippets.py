"""The Python files that a page of the documentation prints, run as they are printed there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Snippets:
    """The code blocks of a page whose first line is a comment with a file's name.

    Args:
        page: The page, from the root of the checkout.
    """

    def __init__(self, page: str) -> None:
        self.text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:python|toml)\n(# ([\w/]+\.\w+)\n.*?)^```", self.text, re.S | re.M)
        self.files = {name: code for code, name in blocks}

    def write(self, folder: Path) -> None:
        """Write the files into a folder."""
        for name, code in self.files.items():
            (folder / name).write_text(code, encoding="utf-8")

    def passed(self, folder: Path, *files: str) -> set[str]:
        """Run test files of the page with pytest, in this process; return the names of the tests that passed."""
        self.write(folder)
        before, reports = set(sys.modules), Reports()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", [*sys.path])
            off = [part for plugin in ("cacheprovider", "timeout", "xdist") for part in ("-p", f"no:{plugin}")]
            settings = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
            pytest.main(["-q", f"--rootdir={folder}", *off, *settings, *files], plugins=[reports])
        for name in set(sys.modules) - before:
            if f"{name}.py" in self.files:
                del sys.modules[name]
        return reports.passed

    def type_errors(self, folder: Path) -> str:
        """Return what a type checker says in strict mode; empty if it finds nothing."""
        self.write(folder)
        files = [name for name in self.files if name.endswith(".py")]
        command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={folder / 'cache'}", *files]
        environ = {"MYPYPATH": str(ROOT), "PATH": ""}
        ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        return "" if ran.returncode == 0 else ran.stdout + ran.stderr


class Reports:
    """A pytest plugin that notes which tests passed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid.partition("::")[2])
