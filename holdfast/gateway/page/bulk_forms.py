"""Forms that decide several requests at once, as the page and its script send them."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field

from holdfast.gateway.bodies import Body, DecisionBody, read_body
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import read_fields
from holdfast.gateway.page.views.bulk import Item

SELECTED = 50
"""The most requests of one form."""


class ItemBody(Body):
    """A request as it was shown."""

    thread: str = Field(min_length=1, max_length=1_000)
    request: str = Field(min_length=1, max_length=200)
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def item(self) -> Item:
        """The request."""
        return Item(self.thread, self.request, self.digest)


class SignatureBody(ItemBody):
    """The browser's signature of the decision on a request."""

    signature: str = Field(pattern=r"^[A-Za-z0-9_-]{86}$")


class Said(Body):
    """The decision on each of the requests."""

    decision: Literal["approve", "deny"]
    say: str = Field(default="", max_length=2_000)
    reason: str = Field(default="", max_length=2_000)

    def on(self, item: Item) -> DecisionBody:
        """Return the decision on one of the requests."""
        return DecisionBody.model_validate({**self.payload(), "request": item.request, "digest": item.digest})


class SignedForm(Body):
    """What the browser has signed: the decision, once for each request."""

    said: Said
    signatures: list[SignatureBody] = Field(max_length=SELECTED)


class BulkForm(NamedTuple):
    """A form that decides several requests."""

    items: tuple[Item, ...]
    said: Said
    signatures: Mapping[Item, str]


def read_items(fields: Mapping[str, list[str]]) -> tuple[Item, ...]:
    """Read the requests of a form, each once.

    Raises:
        HTTPProblem: 422: they are none, or too many.
    """
    texts = fields.get("item", [])
    if len(texts) > SELECTED:
        raise HTTPProblem(422, f"select at most {SELECTED} requests: of {len(texts):,}, none was decided")
    items = tuple(dict.fromkeys(read_body(text.encode(), ItemBody).item for text in texts))
    if not items:
        raise HTTPProblem(422, "select at least one request")
    return items


def read_bulk(fields: Mapping[str, list[str]]) -> BulkForm:
    """Read a form, signed or not.

    Raises:
        HTTPProblem: 422: it is none, or has too many requests.
    """
    items = read_items(fields)
    if sent := fields.get("signed", [""])[-1]:
        signed = read_body(sent.encode(), SignedForm)
        return BulkForm(items, signed.said, {each.item: each.signature for each in signed.signatures})
    said: dict[str, Any] = {"decision": fields.get("decision", [""])[-1]}
    said |= {name: text for name in ("say", "reason") if (text := fields.get(name, [""])[-1]).strip()}
    return BulkForm(items, read_fields(said, Said), {})
