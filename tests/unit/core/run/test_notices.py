"""The receivers of notices and the texts sent to them, without a server."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from holdfast.activities.notify_formats import BLOCK_CHARS, Links, encode_notice
from holdfast.config.webhooks import Receiver, read_receivers
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.record import Notice, Occasion
from holdfast.errors import SettingsError
from tests.support.runs import Thread, agent_spec, says


def notice(arguments: str) -> Notice:
    """Return a notice of an open request."""
    request = ApprovalRequest(
        id="1", kind="approval", number=0, tool="pay", arguments=arguments, digest="d" * 64, why="it is an effect",
        asked_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    return Notice(occasion="request_opened", position=4, agent="clerk", request=request)


def test_urls_are_separated_by_commas_and_may_name_a_format() -> None:
    """`slack+` names the format and is not part of the URL."""
    receivers = read_receivers("https://a.example/x, slack+https://hooks.example/y ,http://127.0.0.1:1/")

    assert [(receiver.host, receiver.format) for receiver in receivers] == [
        ("a.example", "holdfast"),
        ("hooks.example", "slack"),
        ("127.0.0.1", "holdfast"),
    ]
    assert receivers[1].url == "https://hooks.example/y"


def test_a_file_lists_receivers(tmp_path: Path) -> None:
    """A value that is not a URL is the path of a YAML file."""
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
def test_an_unusable_receiver_is_rejected_at_start(setting: str, words: str) -> None:
    """The error names the receiver and shows only the host of its URL."""
    with pytest.raises(SettingsError, match=words) as caught:
        read_receivers(setting)

    assert "hunter2" not in str(caught.value)


def test_plain_http_to_another_machine_needs_a_setting() -> None:
    """Plain HTTP may be acceptable within a cluster's own network."""
    assert read_receivers("http://hooks/x", insecure=True)[0].host == "hooks"


@pytest.mark.parametrize("content", ["", "url: x", "webhooks: [{url: https://a.example, format: teams}]", "{"])
def test_an_invalid_file_is_rejected(tmp_path: Path, content: str) -> None:
    """The error names the file."""
    file = tmp_path / "webhooks.yaml"
    file.write_text(content)

    with pytest.raises(SettingsError, match=r"webhooks\.yaml"):
        read_receivers(str(file))


@pytest.mark.parametrize(
    "arguments", ['{"a": "' + "<&>`" * 20_000 + '"}', "no JSON ``` at all", '{"a": "\\ud800"}', ""]
)
def test_any_text_of_the_llm_fits_a_block(arguments: str) -> None:
    """Slack rejects a message with a block of more than 3,000 characters."""
    message = json.loads(
        encode_notice(
            notice(arguments), Receiver(url="https://x", format="slack"), thread="t" * 200, links=Links(), namespace="n"
        )
    )

    texts = [block["text"]["text"] for block in message["blocks"]]
    assert all(len(text) <= BLOCK_CHARS for text in texts)
    assert all(text.count("```") in (0, 2) for text in texts)
    assert not any("<" in text.replace("&lt;", "") for text in texts)


def test_a_receivers_url_is_not_shown() -> None:
    """The URL grants the right to post, so `repr` omits it."""
    assert "hunter2" not in repr(Receiver(url="https://hooks.example/hunter2"))


@pytest.mark.parametrize("occasion", get_args(Occasion))
def test_each_occasion_has_a_headline_in_slack(occasion: Occasion) -> None:
    """A notice of a kind that the format lacks would fail, and be retried in vain."""
    sent = Notice(occasion=occasion, position=4, agent="clerk", status="waiting_message", text="Done.")
    slack = Receiver(url="https://x", format="slack")
    message = json.loads(encode_notice(sent, slack, thread="t", links=Links(), namespace="n"))
    assert "waiting_message" not in message["text"]


def test_an_answer_comes_with_the_way_to_reply() -> None:
    """A bot needs no documentation to send the person's next message."""
    sent = Notice(occasion="message_awaited", position=4, agent="clerk", status="waiting_message", text="Done.")
    links = Links(gateway="https://gateway.example")
    body = json.loads(encode_notice(sent, Receiver(url="https://x"), thread="ä/1", links=links, namespace="n"))
    assert body["reply"]["http"]["url"] == "https://gateway.example/threads/%C3%A4%2F1/messages"
    assert (body["text"], body["status"]) == ("Done.", "waiting_message")


@pytest.mark.parametrize(
    ("receiver", "wanted"),
    [
        (Receiver(url="https://x"), {"run_finished", "message_awaited"}),
        (Receiver(url="https://x", format="slack"), {"run_finished"}),
        (Receiver(url="https://x", format="slack", occasions=("message_awaited",)), {"message_awaited"}),
        (Receiver(url="https://x", occasions=()), set()),
    ],
)
def test_a_receiver_gets_the_occasions_that_it_asks_for(receiver: Receiver, wanted: set[str]) -> None:
    """A channel in which people decide is not flooded with the answers of every chat, unless the file says so."""
    occasions: tuple[Occasion, ...] = ("run_finished", "message_awaited")
    assert {occasion for occasion in occasions if receiver.wants(occasion)} == wanted


@pytest.mark.parametrize(("features", "limit", "told"), [(2, 60, True), (1, 60, False), (2, 0, False)])
def test_people_are_notified_when_an_open_thread_has_answered(features: int, limit: float, told: bool) -> None:
    """From feature level 2 on, and only if the run stays open for messages: else the end itself is the notice."""
    thread = Thread(agent_spec(limits=Limits(idle_limit=limit)))
    thread.notify = True
    thread.load(features)
    thread.reply(says("the answer"))
    sent = [call.request for call in thread.waiting(Notice) if isinstance(call, Call)]
    assert [each.occasion for each in sent if isinstance(each, Notice)] == (
        ["message_awaited"] if told else [] if limit else ["run_finished"]
    )
    assert all(each.text == "the answer" for each in sent if isinstance(each, Notice))
