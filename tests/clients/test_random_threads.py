"""Random threads, with withdrawn texts and failures, as the published clients read them (`make test-clients`)."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.llm.blocks import ReasoningBlock, blocks_of
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.gateway.feeds.ag_ui import AgUi
from holdfast.gateway.feeds.feed import Encoder, Feed
from holdfast.gateway.feeds.ui_messages import UiMessages
from tests.support.rig import PATIENCE
from tests.unit.gateway.plays import Play, frames, plays

HERE = Path(__file__).parent
ENDS = ("RUN_FINISHED", "RUN_ERROR", "finish")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (HERE / "node_modules" / "ai").is_dir(),
        reason="the clients are not installed: `make test-clients` installs and runs them",
    ),
]


def responses(play: Play, encoder: Encoder) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of each run of a protocol, as the gateway writes them."""
    feed, events = Feed(encoder), list[dict[str, Any]]()
    for each in frames(play, Cursor()):
        for sent in feed.chunk(each) if isinstance(each, Chunk) else feed.event(each):
            events.append(sent.event)
            if sent.event["type"] in ENDS:
                yield events
                events = []


def expected(play: Play) -> dict[str, Any]:
    """Return the recorded texts and reasoning, and the number of results of calls that the conversation shows."""
    recorded = [each.message for each in play.events if each.type == "llm_replied" and each.message]
    said = [each for each in recorded if each.text != "I learnt"]
    thoughts = [block.text for each in said for block in blocks_of(each.content) if isinstance(block, ReasoningBlock)]
    learning, results = False, 0
    for event in play.events:
        learning = event.type == "learning_requested" or (learning and event.type != "run_started")
        results += event.type == "tool_call_finished" and not learning
    return {"texts": [each.text for each in said if each.text], "thoughts": thoughts, "results": results}


@settings(max_examples=4, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(plays(), min_size=10, max_size=10))
def test_published_clients_show_each_reply_and_result_once(some: list[Play]) -> None:
    """Both clients read every event without a complaint, and end with the recorded texts, their reasoning and all
    results.
    """
    threads = [{"ag_ui": [*responses(each, AgUi("t"))], "ui": [*responses(each, UiMessages("t"))]} for each in some]
    program = ("node", str(HERE / "plays.mjs"))
    done = subprocess.run(
        program, input=json.dumps(threads), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    for play, found in zip(some, json.loads(done.stdout), strict=True):
        assert found == {"ag_ui": expected(play), "ui": expected(play)}
