"""Events of a worker inside a program: the program decides what becomes of them."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from holdfast.config.logs import EventLogger


def test_a_program_without_structlog_gets_records(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a configured structlog, an event is a record of the standard library, at its level, and nothing is
    printed.
    """
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    with caplog.at_level(logging.INFO):
        EventLogger("worker").info("migrated", migration="0007")
        EventLogger("holdfast.storage.ledger").warning("lost", key="k\n1")
    first, second = caplog.records
    assert (first.name, first.levelname, first.getMessage()) == ("holdfast.worker", "INFO", "migrated migration='0007'")
    assert (second.name, second.levelname) == ("holdfast.storage.ledger", "WARNING")
    assert "\n" not in second.getMessage()
    assert capsys.readouterr().out == ""


def test_a_program_that_configured_structlog_gets_events() -> None:
    """With a configured structlog, its processors get the event with its fields."""
    with capture_logs() as logged:
        EventLogger("worker").error("server_not_started", reason="no")
    assert [(each["event"], each["log_level"], each["reason"]) for each in logged] == [
        ("server_not_started", "error", "no")
    ]
