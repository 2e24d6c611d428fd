"""Nodes, and the trust scope of a run: which nodes may execute it.

1. A node is the worker of one place. An operator gives it a name and labels; its key identifies it.
2. A selector names nodes: `berlin-1` by name, `region=eu` by label, `key:BASE64` by public key. Terms joined by commas
   must all hold: `region=eu,gpu=yes`.
3. A scope is a tuple of layers. A node is in scope if it fits any selector of every layer. A layer is only ever added,
   so a run, its agent, its sub-agents and its forks can narrow a scope and never widen it.
4. Names and labels are claims of the node's operator, who has the fleet key. A selector that cannot be read fits no
   node.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen
from holdfast.errors import SettingsError

MAX_SELECTORS = 20
"""Maximum selectors of one layer."""

MAX_LAYERS = 16
"""Maximum layers of a scope: a sub-agent adds one, and so do its agent and each later start."""

MAX_LABELS = 20
"""Maximum labels of a node."""

MAX_REJECTIONS = 10
"""Maximum nodes that one answer names as having rejected the work."""

REASON_CHARS = 300
"""Maximum characters of a node's reason."""

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,62}[A-Za-z0-9])?"
_NAME = re.compile(_WORD)
_LABEL = re.compile(rf"({_WORD})=({_WORD})")
_KEY = re.compile(r"key:([A-Za-z0-9+/_=-]{20,100})")


def check_name(name: str) -> str:
    """Return the name of a node, or of a label, if it is valid.

    Raises:
        ValueError: It is not.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is not 1 to 64 letters, digits, '-', '_', '.' or '/'")
    return name


def check_selector(selector: str) -> str:
    """Return the selector if it is valid, without spaces around its terms.

    Raises:
        ValueError: It is not; the message says how to write one.
    """
    terms = [term.strip() for term in selector[:1_000].split(",")]
    if len(selector) > 1_000 or not all(_LABEL.fullmatch(t) or _KEY.fullmatch(t) or _NAME.fullmatch(t) for t in terms):
        raise ValueError(
            f"{selector[:100]!r} selects no node: give a node's name (berlin-1), a label (region=eu), a key "
            "(key:BASE64), or several joined by commas"
        )
    return ",".join(terms)


def read_labels(text: str) -> dict[str, str]:
    """Read the labels of a node: `region=eu,gpu=yes`; empty for none.

    Raises:
        ValueError: One is not `NAME=VALUE`, a name is there twice, or there are more than `MAX_LABELS`.
    """
    labels: dict[str, str] = {}
    for term in filter(None, (term.strip() for term in text.split(","))):
        label = _LABEL.fullmatch(term)
        if label is None:
            raise ValueError(f"{term[:100]!r} is not a label; write it as region=eu")
        if label[1] in labels:
            raise ValueError(f"the label {label[1]!r} is there twice")
        labels[label[1]] = label[2]
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels; a node has at most {MAX_LABELS}")
    return labels


Selector = Annotated[str, AfterValidator(check_selector)]
Nodes = Annotated[tuple[Selector, ...], Field(max_length=MAX_SELECTORS)]
"""One layer of a scope: a node fits if any of these selects it. Empty for every node."""
TrustScope = tuple[tuple[str, ...], ...]
"""The layers of a scope, all of which a node has to fit. Empty for every node. Starts and agents check them."""


class Node(Frozen):
    """A node, as it describes itself."""

    name: str = ""
    labels: dict[str, str] = {}
    key: str = ""
    """Its public key; empty if it has none."""

    def fits(self, selector: str) -> bool:
        """Return whether the selector selects this node: every term holds."""
        return all(self._has(term) for term in selector.split(","))

    def _has(self, term: str) -> bool:
        if key := _KEY.fullmatch(term):
            return bool(self.key) and key[1] == self.key
        if label := _LABEL.fullmatch(term):
            return self.labels.get(label[1]) == label[2]
        return bool(self.name) and term == self.name

    def missing(self, scope: TrustScope) -> str:
        """Return the first layer of a scope that this node does not fit, in words; empty if it is in scope."""
        return next((layer_text(nodes) for nodes in scope if nodes and not any(map(self.fits, nodes))), "")


NO_NODE = Node()
"""A node without a name, which no selector selects."""


def narrowed(scope: TrustScope, *layers: tuple[str, ...]) -> TrustScope:
    """Return the scope with these layers added; each layer counts once."""
    return tuple(dict.fromkeys((*scope, *(nodes for nodes in layers if nodes))))


def layer_text(nodes: tuple[str, ...]) -> str:
    """Return one layer in words: `region=eu or berlin-1`."""
    return " or ".join(nodes)


def scope_text(scope: TrustScope) -> str:
    """Return a scope in words: `(region=eu or berlin-1) and gpu=yes`; empty for every node."""
    layers = [layer_text(nodes) for nodes in scope]
    return layers[0] if len(layers) == 1 else " and ".join(f"({each})" if " or " in each else each for each in layers)


RejectionKind = Literal["scope", "policy", "constraint", "approval"]
"""Why a node did not take the work: it is out of scope · its policy denies it · a tool said that it could not there ·
its policy requires the approval of a person."""


class NodeRejection(Frozen):
    """A node that did not take the work, and why."""

    node: str
    kind: RejectionKind
    reason: str

    @property
    def line(self) -> str:
        """The rejection on one line."""
        return f"{self.node or 'a node without a name'}: {self.reason}"


class Unfit(Frozen):
    """Nodes on which a tool said that it could not make such a call."""

    nodes: str
    """A selector: the node's name, or a label with its value."""
    reason: str


class Placement(Frozen):
    """The node that took the work, or the nodes that did not; part of an activity's result."""

    node: Node | None = None
    """The node that ran it; None if no node took it."""
    policy: str = ""
    """The hash of the node's own policy, if that judged the work; empty if it did not."""
    rule: str = ""
    """The rule of that policy which let the work run."""
    rejected: tuple[NodeRejection, ...] = ()
    """The nodes that did not take it before, each once, at most `MAX_REJECTIONS`."""
    same: bool = False
    """Node and policy are those that the request names as `recorded`, and are left out: history stores every byte."""


HASH_CHARS = 16
"""Characters of a hash in `NodeTerms`."""


def placement_digest(node: Node, policy: str) -> str:
    """Return the digest by which a request names a node and the hash of its own policy."""
    return _placement_digest(node.name, tuple(node.labels.items()), node.key, policy)


@lru_cache(maxsize=1_000)
def _placement_digest(name: str, labels: tuple[tuple[str, str], ...], key: str, policy: str) -> str:
    node = Node(name=name, labels=dict(labels), key=key)
    return digest(["placement/1", node.model_dump_json(), policy])[:HASH_CHARS]


class NodeTerms(Frozen):
    """The terms of a run for the nodes that execute it; part of an activity's request."""

    scope: TrustScope = ()
    unfit: tuple[Unfit, ...] = ()
    """For a tool call: nodes that could not make it."""
    agent: str = ""
    depth: int = 0
    policies: tuple[str, ...] = ()
    """The hashes of the policies that judged the work already, shortened to `HASH_CHARS`."""
    approved: bool = False
    """A person has approved the call."""
    tries: int = 0
    """How often in a row no node took the work: a worker then asks the others for longer."""
    recorded: str = ""
    """The digest of the node and the policy that the run has recorded last (`placement_digest`); empty for none."""


def selected_nodes(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the selectors of nodes that a start gives.

    Raises:
        SettingsError: One selects nothing, or there are too many.
    """
    if isinstance(nodes, str) or len(nodes) > MAX_SELECTORS:
        raise SettingsError(f"`nodes` is a list of at most {MAX_SELECTORS} selectors, such as ['region=eu']")
    try:
        return tuple(map(check_selector, nodes))
    except ValueError as error:
        raise SettingsError(f"`nodes`: {error}") from None
