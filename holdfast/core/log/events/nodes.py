"""Events about the nodes that execute a run: one took the work, none did, or a tool could not run on one."""

from datetime import datetime
from typing import Literal

from holdfast.core.log.events.base import Event
from holdfast.core.nodes import Node, NodeRejection, TrustScope


class NodeAccepted(Event):
    """A node took the work of a run with a trust scope, or of one that the node's own policy judges: another node than
    before, or under another policy, or after other nodes sent the work on. Recorded from feature level 2 on.

    Followed by: the events that follow from the result of its work.
    Correlate: `number` is that of the tool call that it made; 0 for an LLM call and for the loading of the agent.
    """

    type: Literal["node_accepted"] = "node_accepted"
    node: Node
    """The node, by its own account."""
    policy: str = ""
    """The hash of the node's own policy, which let the work run; empty if it has none, or the run's own is the same."""
    rule: str = ""
    """The rule of that policy."""
    number: int = 0
    rejected: tuple[NodeRejection, ...] = ()
    """The nodes that sent the work on before, each with its reason."""


class NodeAwaited(Event):
    """No node took the work, and the run waits for one. Recorded from feature level 2 on.

    Followed by: after `until`, the same work is offered again: `tool_call_started` for a call.
    Correlate: `number` is that of the tool call, which has not run; 0 for an LLM call and for the loading of the agent.
    """

    type: Literal["node_awaited"] = "node_awaited"
    number: int = 0
    request: str = ""
    """The request whose decision allowed the call: it is not consumed."""
    scope: TrustScope = ()
    """The trust scope of the run, which it waits for a node of."""
    rejected: tuple[NodeRejection, ...] = ()
    """The nodes that were asked, each with its reason."""
    until: datetime
    """When the run asks again."""


class ToolCallRerouted(Event):
    """A tool said that it could not make the call on this node (`Cannot(scope="node")`), and has done nothing. The call
    goes to another node. From here on, calls of the tool leave out such nodes. Recorded from feature level 2 on.

    Followed by: `tool_call_started` of the same call.
    Correlate: `number` is the call's, and the number of the constraint that it makes, for `constraint_lifted`.
    """

    type: Literal["tool_call_rerouted"] = "tool_call_rerouted"
    number: int
    request: str = ""
    """The request whose decision allowed the call: it is not consumed."""
    nodes: str
    """The nodes that could not: the name of one, or a label with its value."""
    reason: str
    until: datetime | None = None
    """When such a node may be able again; None until a person removes the constraint."""
