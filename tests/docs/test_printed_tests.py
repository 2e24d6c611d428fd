"""The tests on pages, run as printed there, in plain pytest."""

import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, files

TESTS = {
    ("resources.md", "test_shop.py"): {"test_an_order_is_shipped"},
    ("get-a-structured-result.md", "test_reports.py"): {"test_the_result_is_a_report"},
    ("middleware.md", "test_desk.py"): {"test_a_card_number_never_gets_in", "test_the_office_is_closed"},
    ("test-your-agent.md", "test_support.py"): {
        "test_a_refund_needs_approval",
        "test_the_agent_reads_a_denial",
        "test_a_request_expires",
        "test_a_conversation",
    },
}
"""Page and file → the tests in it."""

FIRST, *FURTHER = TESTS


@pytest.mark.parametrize(
    ("page", "file"), [FIRST, *(pytest.param(*each, marks=pytest.mark.extended) for each in FURTHER)]
)
def test_they_pass(page: str, file: str, tmp_path: Path) -> None:
    """Each printed test passes."""
    assert passed(page, file, tmp_path) == TESTS[page, file]


@pytest.mark.slow
def test_the_kill_matrix_passes(tmp_path: Path) -> None:
    """The printed kill matrix passes."""
    assert len(passed("test-your-agent.md", "test_kills.py", tmp_path)) == 2


def passed(page: str, file: str, folder: Path) -> set[str]:
    """Run a test file of a how-to page, in this process; return the names of the tests that passed."""
    own = files(DOCS / "how-to" / page)
    for name, code in own.items():
        (folder / name).write_text(code, encoding="utf-8")
    before, reports = set(sys.modules), Reports()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        off = [part for plugin in ("cacheprovider", "timeout", "xdist") for part in ("-p", f"no:{plugin}")]
        settings = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
        pytest.main(["-q", f"--rootdir={folder}", *off, *settings, file], plugins=[reports])
    for module in set(sys.modules) - before:
        if f"{module}.py" in own:
            del sys.modules[module]
    return reports.passed


class Reports:
    """A pytest plugin that records the passed tests."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a passed test."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid.partition("::")[2])
