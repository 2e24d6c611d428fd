"""The typed context of a run: which calls see it."""

from holdfast.core.base.models import replace
from holdfast.core.run.state.features import TYPED_CONTEXT
from holdfast.core.run.state.typed_context import TypedContext
from tests.support.runs import agent_spec, calls, loaded_thread, tool_spec


def test_only_a_tool_that_wants_the_context_sees_it() -> None:
    """A tool that takes no context gets none, nor does any tool of a run below the feature level of contexts."""
    thread = loaded_thread(agent_spec(tools=(tool_spec("look", wants_context=True), tool_spec("peek"))))
    thread.reply(calls("look", "peek"))
    state = replace(thread.state, features=TYPED_CONTEXT, typed_context=TypedContext({"customer": 7}))
    assert state.context_of(1, "look") == {"customer": 7}
    assert state.context_of(2, "peek") is None
    assert state.context_of(0, "gone") is None
    assert replace(state, features=TYPED_CONTEXT - 1).context_of(1, "look") is None
