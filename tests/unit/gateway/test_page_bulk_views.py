"""Which requests can be decided at once."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.gateway.page.views.bulk import GROUPS, Item, groups, kind_of, sort_items
from holdfast.gateway.page.views.requests import Person

JSON = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DIGEST = "a" * 64


def request(**changed: Any) -> JSON:
    """Return an open request as `pending` presents it."""
    may: JSON = {"decide": ["alice"], "deny": None, "signed": False, "gateways": [], "keys": {}}
    plain: JSON = {"thread": "t", "request": "1", "kind": "approval", "tool": "pay", "rule": "ask pay", "why": "money"}
    plain |= {"digest": DIGEST, "arguments": {"cents": 1}, "answers": ["approve", "deny", "respond"], "may": may}
    return {**plain, "who": ["alice"], "quorum": 1} | changed


@pytest.mark.parametrize(
    "changed", [{"tool": "refund"}, {"rule": "ask"}, {"who": ["bob"]}, {"who": []}, {"quorum": 2}], ids=str
)
def test_only_like_requests_are_of_one_kind(changed: JSON) -> None:
    """Another tool, rule, quorum, or other people make another kind; other arguments and runs do not."""
    assert kind_of(request(**changed)) != kind_of(request())
    assert kind_of(request(thread="u", arguments={}, digest="b" * 64)) == kind_of(request()) != ""


@pytest.mark.parametrize("changed", [{"kind": "reconcile"}, {"kind": "question"}, {"answers": ["respond"]}], ids=str)
def test_some_requests_are_looked_at_alone(changed: JSON) -> None:
    """An unknown outcome, a question and a request without both answers are in no group."""
    assert kind_of(request(**changed)) == ""
    assert groups([request(**changed)] * 3) == ()


def test_groups_are_the_largest_first() -> None:
    """The inbox offers groups of at least two requests, the largest first, and not too many."""
    many = [request(tool=f"tool-{size}") for size in range(GROUPS + 3) for _ in range(size)]
    assert [(each.tool, each.size) for each in groups(many)] == [
        (f"tool-{size}", size) for size in range(GROUPS + 2, 2, -1)
    ]


def test_a_signature_is_needed_from_each() -> None:
    """A request whose policy requires the person's signature is left out of a form that does not have it."""
    may = {**request()["may"], "signed": True, "keys": {"alice": ["ed25519:x"]}}
    bound = {"spec_hash": "s", "effect_key": "e", "epoch": 0}
    item, asked = Item("t", "1", DIGEST), request(may=may, **bound)
    person, found = Person("alice", True), {("t", "1"): asked}
    for signed, expected in ((None, 1), ({item}, 1), (set[Item](), 0)):
        result = sort_items([item], found, kind_of(asked), "approve", person, NOW, signed=signed)
        assert (len(result.open), len(result.left_out)) == (expected, 1 - expected)
        assert all("requires your signature" in each.why for each in result.left_out)
