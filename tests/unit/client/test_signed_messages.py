"""Signed messages without a server: what is wrong with one is found before anything is sent or started."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast.client.messages import say
from holdfast.client.threads import Started, Threads
from holdfast.core.authority.interventions import Message
from holdfast.core.authority.policy import Policy, Terms, allow
from holdfast.core.authority.signatures import sign
from holdfast.core.log.event_log import event_line
from tests.support.people import KEYS, PEOPLE
from tests.support.runs import Thread, agent_spec, loaded_thread, says

PROVEN = Policy(rules=(allow(),), approvers=PEOPLE, signatures="required", terms=Terms(requester_may_decide=False))
"""A policy under which a message has to prove who sends it."""


@dataclass
class ClosedThread:
    """Stands for the namespace's threads, with one whose run has ended."""

    thread: Thread
    started: list[str] = field(default_factory=list)

    @property
    def reader(self) -> "ClosedThread":
        """The reader."""
        return self

    async def find(self, thread: str) -> None:
        """Find no open run."""

    async def lines(self, thread: str, start: int, **given: Any) -> AsyncIterator[bytes]:
        """Yield the lines of the log."""
        for event in self.thread.log:
            yield event_line(event)

    async def start(self, task: str, thread: str, *given: Any, **more: Any) -> Started:
        """Start a run."""
        self.started.append(task)
        return Started(thread=thread, run_id="r", continued=True)


def closed(policy: Policy) -> ClosedThread:
    """Return a thread whose agent has this policy, and whose run has ended."""
    thread = loaded_thread(agent_spec(policy=policy))
    thread.reply(says("Done."))
    while not thread.closed:
        thread.archive()
    return ClosedThread(thread)


async def outcome_of(found: ClosedThread | None, *, key: str = "alice", **changes: str) -> str:
    """Send a message that Alice signs, or somebody else in her name, and return the outcome.

    Args:
        found: The threads; None for none that may be used.
        key: The owner of the key.
        changes: Fields that are changed after the signature.
    """
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
    said = {"message": "And now?", "by": "alice", "id": "m-1", "until": until}
    signature = sign(KEYS[key], Message.model_validate(said).signed_bytes("t"))
    own = {"id": "m-1", "until": until, "signature": signature, **changes}
    return (await say(cast(Threads, found), "t", "And now?", by="alice", id="m-1", signature=own)).outcome


@pytest.mark.parametrize("until", ["2026-99-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-02T24:00:00Z", "soon"])
async def test_an_expiry_that_is_no_time_is_malformed(until: str) -> None:
    """No run and no server is asked about it."""
    assert await outcome_of(None, until=until) == "malformed"


@pytest.mark.parametrize(
    ("outcome", "sent"),
    [
        ("bad_signature", {"key": "bob"}),
        ("bad_signature", {"key": "mallory"}),
        ("bad_signature", {"until": "2099-01-01T00:00:00Z"}),
    ],
)
async def test_a_signature_that_an_open_run_would_reject_reopens_no_thread(outcome: str, sent: dict[str, str]) -> None:
    """Another person's key, an unlisted key and a changed message start no run: the new run would not see them."""
    thread = closed(PROVEN)
    assert await outcome_of(thread, **sent) == outcome
    assert thread.started == []


async def test_an_expired_signature_reopens_no_thread() -> None:
    """It is judged by the sender's clock, because no run is there to judge it."""
    thread, past = closed(PROVEN), {"message": "And now?", "by": "alice", "id": "m", "until": "2026-01-01T00:00:00Z"}
    signature = sign(KEYS["alice"], Message.model_validate(past).signed_bytes("t"))
    own = {"id": "m", "until": past["until"], "signature": signature}
    said = await say(cast(Threads, thread), "t", "And now?", by="alice", id="m", signature=own)
    assert (said.outcome, thread.started) == ("too_late", [])


@pytest.mark.parametrize(("policy", "key"), [(PROVEN, "alice"), (Policy(rules=(allow(),)), "mallory")])
async def test_a_message_that_an_open_run_would_take_reopens_its_thread(policy: Policy, key: str) -> None:
    """A valid signature does, and any signature under a policy that takes names on trust."""
    thread = closed(policy)
    assert await outcome_of(thread, key=key) == "reopened"
    assert thread.started == ["And now?"]
