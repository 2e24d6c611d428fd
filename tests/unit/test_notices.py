"""Whom a setting names, and what they are told, without a server."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.notify_formats import BLOCK_CHARS, Links, encode_notice
from holdfast.authority.approvals import ApprovalRequest
from holdfast.errors import SettingsError
from holdfast.run.contracts import Notice
from holdfast.runtime.config.webhooks import Receiver, read_receivers


def notice(arguments: str) -> Notice:
    """An open request."""
    request = ApprovalRequest(
        id="1", kind="approval", number=0, tool="pay", arguments=arguments, digest="d" * 64, why="it is an effect",
        asked_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    return Notice(occasion="request_opened", position=4, agent="clerk", request=request)


def test_urls_stand_side_by_side_and_say_their_format() -> None:
    """Commas part receivers; `slack+` is the format, and no part of the URL."""
    receivers = read_receivers("https://a.example/x, slack+https://hooks.example/y ,http://127.0.0.1:1/")

    assert [(receiver.host, receiver.format) for receiver in receivers] == [
        ("a.example", "holdfast"),
        ("hooks.example", "slack"),
        ("127.0.0.1", "holdfast"),
    ]
    assert receivers[1].url == "https://hooks.example/y"


def test_a_file_lists_receivers(tmp_path: Path) -> None:
    """What is no URL is the path of a YAML file."""
    file = tmp_path / "webhooks.yaml"
    file.write_text("webhooks:\n- {url: https://a.example/x, format: slack, buttons: true}\n")

    assert (Receiver(url="https://a.example/x", format="slack", buttons=True),) == read_receivers(str(file))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("http://a.example/hunter2", "plain http://"),
        ("ftp://a.example/hunter2", "https://"),
        ("https:///hunter2", "https://"),
        ("https://a.example:port/hunter2", "malformed URL"),
        ("https://[/hunter2", "malformed URL"),
        ("http://127.0.0.1.example/hunter2", "plain http://"),
    ],
)
def test_a_receiver_that_cannot_be_used_is_refused_before_anything_starts(setting: str, words: str) -> None:
    """The error says which, and shows no more of the URL than its host."""
    with pytest.raises(SettingsError, match=words) as caught:
        read_receivers(setting)

    assert "hunter2" not in str(caught.value)


def test_plain_http_beyond_this_machine_takes_a_setting() -> None:
    """Within a cluster's own network it may be right."""
    assert read_receivers("http://hooks/x", insecure=True)[0].host == "hooks"


@pytest.mark.parametrize("content", ["", "url: x", "webhooks: [{url: https://a.example, format: teams}]", "{"])
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, content: str) -> None:
    """A file with a typing error is told of, by its name."""
    file = tmp_path / "webhooks.yaml"
    file.write_text(content)

    with pytest.raises(SettingsError, match=r"webhooks\.yaml"):
        read_receivers(str(file))


@pytest.mark.parametrize(
    "arguments", ['{"a": "' + "<&>`" * 20_000 + '"}', "no JSON ``` at all", '{"a": "\\ud800"}', ""]
)
def test_whatever_the_llm_wrote_fits_a_block(arguments: str) -> None:
    """Slack refuses a block of more than 3,000 characters, and the whole message with it."""
    told = json.loads(
        encode_notice(
            notice(arguments), Receiver(url="https://x", format="slack"), thread="t" * 200, links=Links(), namespace="n"
        )
    )

    texts = [block["text"]["text"] for block in told["blocks"]]
    assert all(len(text) <= BLOCK_CHARS for text in texts)
    assert all(text.count("```") in (0, 2) for text in texts)
    assert not any("<" in text.replace("&lt;", "") for text in texts)


def test_no_text_shows_a_receivers_url() -> None:
    """Who has the URL can write there, so it is in no log."""
    assert "hunter2" not in repr(Receiver(url="https://hooks.example/hunter2"))
