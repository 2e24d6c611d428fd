"""Activity logs: a line that cannot be written causes no failure."""

import io
import sys
from collections.abc import Iterator

import pytest
import structlog

from holdfast.activities.safe_logs import SafeLogger


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    """Let structlog print, as in a program that has configured it so."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    structlog.configure()
    yield
    structlog.reset_defaults()
    if before:
        structlog.configure(**before)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_line_that_cannot_be_encoded_is_escaped(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """A name that the output encoding lacks characters for is written in ASCII, and the call continues."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    SafeLogger("test").info("tool_failed", reason="cannot read \udce9")
    assert b"\\udce9" in written.getvalue()


def test_a_closed_output_loses_the_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a program has closed its output, only the line is lost."""
    output = io.TextIOWrapper(io.BytesIO())
    output.close()
    monkeypatch.setattr(sys, "stdout", output)
    SafeLogger("test").warning("tool_failed", reason="no")
