"""`start --conversation FILE`."""

import json
from pathlib import Path

import pytest
import typer

from holdfast.cli.options import read_conversation_file
from holdfast.core.llm.conversation import EarlierMessage

USER = {"role": "user", "content": "one\u2028line"}
REPLY = {"role": "assistant", "content": "ok", "at": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([USER, REPLY]),
        json.dumps({"model": "m", "messages": [USER, REPLY]}, indent=1),
        f"{json.dumps(USER, ensure_ascii=False)}\n{json.dumps(REPLY)}\n",
    ],
    ids=["a list", "a request", "a transcript"],
)
def test_a_file_is_a_list_a_request_or_a_transcript(tmp_path: Path, text: str) -> None:
    """All three forms are the same conversation."""
    (file := tmp_path / "chat.json").write_text(text, encoding="utf-8")
    expected = (EarlierMessage(role="user", text="one\u2028line"), EarlierMessage(role="assistant", text="ok"))
    assert read_conversation_file(file) == expected


def test_a_transcript_of_one_message_is_a_conversation(tmp_path: Path) -> None:
    """One line of `transcript --json` is no request to a provider."""
    (file := tmp_path / "chat.json").write_text(json.dumps(REPLY))
    assert read_conversation_file(file) == (EarlierMessage(role="assistant", text="ok"),)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b" " * 1_000_001])
def test_a_file_that_is_no_json_or_too_large_is_a_wrong_option(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    (file := tmp_path / "chat.json").write_bytes(content)
    with pytest.raises(typer.BadParameter, match=r"chat\.json"):
        read_conversation_file(file)
