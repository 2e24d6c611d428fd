"""The nodes of a run in its state: the one that took its work last, and the wait for one if none did."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.base.models import replace
from holdfast.core.nodes import Node, NodeRejection, TrustScope, scope_text


@dataclass(frozen=True)
class Places:
    """The nodes that execute a run."""

    scope: TrustScope = ()
    """The nodes that may execute it, by its starts and the runs above; its agent may narrow that further."""
    node: Node | None = None
    """The node that was recorded last to have taken its work."""
    policy: str = ""
    """The hash of that node's own policy; empty if it has not judged the run."""
    tries: int = 0
    """How often in a row no node took the work."""
    until: datetime | None = None
    """When the run offers its work again, if no node took it; else None."""
    rejected: tuple[NodeRejection, ...] = ()
    """The nodes that did not take it."""

    def waits_at(self, at: datetime) -> bool:
        """Return whether the run waits for a node, and does not offer its work yet."""
        return self.until is not None and self.until > at

    def accepted(self, node: Node, policy: str) -> "Places":
        """Record the node that took the work."""
        return replace(self, node=node, policy=policy, tries=0, until=None, rejected=())

    def awaiting(self, rejected: tuple[NodeRejection, ...], until: datetime) -> "Places":
        """Record that no node took the work."""
        return replace(self, tries=self.tries + 1, until=until, rejected=rejected)

    def worked(self) -> "Places":
        """End the wait: a node has done some work."""
        return replace(self, tries=0, until=None, rejected=()) if self.tries else self

    def view(self, scope: TrustScope) -> dict[str, Any]:
        """Return the nodes as `show` presents them.

        Args:
            scope: The whole scope, with the agent's.
        """
        waits_for = None
        if self.until:
            rejected = [each.line for each in self.rejected]
            waits_for = {"nodes": scope_text(scope), "until": self.until.isoformat(), "rejected": rejected}
        return {
            "scope": [list(nodes) for nodes in scope],
            "node": self.node.model_dump() if self.node else None,
            "policy": self.policy,
            "waits_for": waits_for,
        }
