"""Signed checkpoints of nodes: what is signed, what counts as evidence, and when a log contradicts it."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.audit.judge import anchors
from holdfast.audit.judge.anchors import explaining_seal, sort_seals
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.log.node_seals import SignedCheckpoint, make_seal, read_seal

KEY, OTHER = (encode_key(bytes([n]) * 32) for n in (1, 2))
NODE = public_key(KEY)
AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)


def seal_of(events: int = 3, *, key: str = KEY, thread: str = "rel-1", namespace: str = "default") -> SignedCheckpoint:
    """Return a checkpoint over this many events, whose digests are their numbers."""
    return make_seal(key, namespace=namespace, thread=thread, events=events, head=f"{events - 1:064x}", at=AT)


def log_of(events: int) -> dict[int, str]:
    """Return the digests of such a log."""
    return {position: f"{position:064x}" for position in range(events)}


def test_a_checkpoint_is_canonical_json_that_anybody_can_check() -> None:
    """The signed text is the witnessed line without its signature; a parsed checkpoint equals the original."""
    seal = seal_of()
    assert seal.signed_bytes() == (
        b'{"at":"2026-01-02T03:04:05.000678Z","events":3,"head":"' + b"0" * 63 + b'2","holdfast":"node-seal/1",'
        b'"namespace":"default","node":"' + NODE.encode() + b'","thread":"rel-1"}'
    )
    assert seal.signature == sign(KEY, seal.signed_bytes())
    assert read_seal(seal.line()) == seal
    assert seal.is_signed()


@pytest.mark.parametrize(
    "change",
    [
        {"thread": "rel-2"},
        {"namespace": "other"},
        {"events": 4},
        {"head": "f" * 64},
        {"at": datetime(2027, 1, 1, tzinfo=UTC)},
        {"node": public_key(OTHER)},
        {"signature": ""},
        {"signature": "A" * 86},
    ],
)
def test_a_signature_covers_every_field(change: dict[str, object]) -> None:
    """A checkpoint with any field changed fails verification against its node's key."""
    assert not seal_of().model_copy(update=change).is_signed()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        seal_of().line().replace(b"node-seal/1", b"decision/1"),
        seal_of().line().replace(b'"events":3', b'"events":"3"'),
        seal_of().line().replace(b'"events":3', b'"events":0'),
        seal_of().line().replace(b'"events":3', b'"events":3.0'),
        seal_of().line().replace(NODE.encode(), b"ed25519:x"),
        seal_of().line()[:-5],
    ],
)
def test_other_lines_are_no_checkpoints(line: bytes) -> None:
    """A witness may hold any lines; only a complete checkpoint of this format is read as one."""
    assert read_seal(line) is None


def test_only_checkpoints_of_the_thread_by_trusted_nodes_are_evidence() -> None:
    """A line that is forged, copied, from an unknown node or no checkpoint is named, and does not count."""
    lines = [
        seal_of(5).line(),
        seal_of(2).line(),
        seal_of(2).line(),
        b"torn",
        seal_of(4).model_copy(update={"events": 9}).line(),
        seal_of(4, thread="rel-2").line(),
        seal_of(4, namespace="test").line(),
        seal_of(4, key=OTHER).line(),
    ]
    found = sort_seals(lines, log_of(9), thread="rel-1", namespace="default", nodes={NODE: None})
    assert (found.covered, found.matching, found.nodes) == (5, 1, {NODE})
    assert [why.split(" (")[0] for why in found.refused] == [
        "no evidence: lines that are not seals",
        "no evidence: seals that their node did not sign",
        "no evidence: seals of another thread",
        "no evidence: seals of another namespace",
        "no evidence: seals of nodes that are not among the given ones",
    ]
    assert sort_seals(lines, {}, thread="rel-1").nodes == {NODE, public_key(OTHER)}


def test_a_log_matches_the_checkpoints_signed_over_it() -> None:
    """A different or absent event contradicts a checkpoint; in a partial log, a missing event is no fault."""
    seals = [seal_of(2), seal_of(5)]

    def mismatches(digests: dict[int, str], *, whole: bool = True) -> list[SignedCheckpoint]:
        return sort_seals([seal.line() for seal in seals], digests, thread="rel-1", whole=whole).mismatches

    assert mismatches(log_of(5)) == []
    assert mismatches(log_of(4)) == [seals[1]]
    assert mismatches(log_of(4), whole=False) == []
    assert mismatches(log_of(5) | {1: "f" * 64}) == [seals[0]]
    assert mismatches(log_of(5) | {1: "f" * 64}, whole=False) == [seals[0]]
    assert mismatches({}) == seals


def abandoned_seal_of(events: int, head: str = "", *, seconds: int = 0, key: str = KEY) -> SignedCheckpoint:
    """Return a checkpoint which says that a reset abandoned a log of this many events."""
    head = head or f"{events - 1:064x}"
    at = AT + timedelta(seconds=seconds)
    return make_seal(key, namespace="default", thread="rel-1", events=events, head=head, at=at, gone="reset")


def test_a_checkpoint_covers_the_abandoned_log_and_no_other() -> None:
    """The checkpoint covers the abandoned log's own events, by that log or else by time, and nothing beyond."""
    seal, end = seal_of(5), "e" * 64
    branch = log_of(8) | {7: end}
    for gone, branches in (
        (abandoned_seal_of(5, seconds=-9), []),  # however the clocks differ
        (abandoned_seal_of(8, end, seconds=-9), [branch]),
        (abandoned_seal_of(8, end, seconds=9), []),
    ):
        assert explaining_seal(seal, [gone], branches, trusting=False) == gone
        assert explaining_seal(seal, [gone], branches, trusting=True) == gone
    for gone, branches in (
        (abandoned_seal_of(4, seconds=9), [branch]),  # it ended before
        (abandoned_seal_of(8, end, seconds=-9), []),  # it was abandoned before
        (abandoned_seal_of(8, end, seconds=9), [branch | {4: "f" * 64}]),  # it was another log
    ):
        assert explaining_seal(seal, [gone], branches, trusting=False) is None
    stranger = abandoned_seal_of(5, key=OTHER)
    assert explaining_seal(seal, [stranger], [], trusting=False) == stranger
    assert explaining_seal(seal, [stranger], [], trusting=True) is None


def test_a_key_that_was_revoked_counts_until_then() -> None:
    """Checkpoints from before the revocation count; later ones do not, and are named."""
    until = AT + timedelta(seconds=1)
    early, late = seal_of(2), seal_of(4).model_copy(update={"at": until})
    late = late.model_copy(update={"signature": sign(KEY, late.signed_bytes())})
    found = sort_seals([early.line(), late.line()], log_of(9), thread="rel-1", nodes={NODE: until})
    assert (found.covered, len(found.refused), "revoked" in found.refused[0]) == (2, 1, True)


def test_too_many_checkpoints_hide_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a witness takes bounded memory; a contradicting checkpoint beyond the bound is still reported."""
    monkeypatch.setattr(anchors, "MOST", 3)
    found = sort_seals((seal_of(events).line() for events in range(1, 6)), {}, thread="rel-1")
    assert (len(found.mismatches), found.beyond) == (3, seal_of(5))
