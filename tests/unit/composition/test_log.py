"""Logging: its lines, and the withheld values."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog
from temporalio.exceptions import ApplicationError

from holdfast.composition.telemetry.logs import configure_logging
from holdfast.core.tools.secrets import Secrets


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Yield the log as JSON lines; restore the earlier configuration afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    configure_logging("INFO", "json", stream=stream)
    yield stream
    root.handlers[:], level, config = before
    root.setLevel(level)
    structlog.configure(**config)


def last(lines: io.StringIO) -> dict[str, object]:
    """Return the last line."""
    line: dict[str, object] = json.loads(lines.getvalue().splitlines()[-1])
    return line


@pytest.mark.parametrize(
    "key",
    [
        "task",
        "arguments",
        "api_key",
        "Authorization",
        "DATABASE_URL",
        "messages",
        "X-Api-Key",
        "github_token",
        "apiKey",
    ],
)
def test_prompts_arguments_and_secrets_are_withheld(lines: io.StringIO, key: str) -> None:
    """Every logger withholds these keys, in any case."""
    structlog.get_logger("ours").info("something_happened", thread="t", **{key: "hush"})
    assert last(lines)[key] == "(withheld)"
    assert last(lines)["thread"] == "t"
    assert "hush" not in lines.getvalue()


def test_the_standard_librarys_records_look_like_ours(lines: io.StringIO) -> None:
    """Temporal's logger and Holdfast's write the same kind of line."""
    logging.getLogger("temporalio.worker").warning("it %s", "happened")
    line = last(lines)
    assert (line["event"], line["level"], line["logger"]) == ("it happened", "warning", "temporalio.worker")


def test_an_expected_error_is_logged_without_traceback(lines: io.StringIO) -> None:
    """Only an unexpected exception has a traceback."""
    log = logging.getLogger("temporalio.activity")
    try:
        raise ApplicationError("401: wrong key", type="LLMRejected")
    except ApplicationError:
        log.warning("failed", exc_info=True)
    assert (last(lines)["reason"], "exception" in last(lines)) == ("LLMRejected: 401: wrong key", False)
    try:
        raise ValueError("surprise")
    except ValueError:
        log.warning("failed", exc_info=True)
    assert "surprise" in str(last(lines)["exception"])


def test_lines_below_the_level_are_not_logged(lines: io.StringIO) -> None:
    """The level applies to Holdfast's loggers and to others."""
    structlog.get_logger("ours").debug("quiet")
    logging.getLogger("theirs").debug("quiet")
    assert lines.getvalue() == ""


def test_nested_secrets_are_withheld(lines: io.StringIO) -> None:
    """Secrets are withheld at any depth; token counts are logged."""
    structlog.get_logger("ours").info(
        "asked", request={"headers": {"a": "hush"}, "auth": [{"password": "hush"}]}, tokens=7
    )
    assert last(lines)["request"] == {"headers": "(withheld)", "auth": [{"password": "(withheld)"}]}
    assert last(lines)["tokens"] == 7


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_line_contains_a_secret(lines: io.StringIO, form: Literal["json", "console"]) -> None:
    """A secret is redacted in messages, under harmless keys, and in tracebacks and their causes."""
    value = 'hunter2"\\\n/hunter2'
    configure_logging("INFO", form, stream=lines, secrets=Secrets({"STRIPE_KEY": value}))
    structlog.get_logger("ours").info("happened", note=value, nested={"deep": [value]})
    logging.getLogger("theirs").warning("it was %s", value)
    try:
        try:
            raise KeyError(value)
        except KeyError as error:
            raise ValueError(f"wrong: {value}") from error
    except ValueError:
        structlog.get_logger("ours").info("failed", exc_info=True)
        logging.getLogger("theirs").exception("failed")
    assert "hunter2" not in lines.getvalue()
    assert lines.getvalue().count("[secret STRIPE_KEY]") >= 7
