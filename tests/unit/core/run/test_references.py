"""Which artifacts an event refers to, and from which feature level on it names them itself."""

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.llm.blocks import TextBlock
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.log.references import artifacts_of, left_out
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from tests.support.runs import calls, loaded_thread

OWN, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
CONTENT = (TextBlock(text=left_out("image", 700_000, OWN)), TextBlock(text=left_out("image", 700_000, OTHER)))


@pytest.mark.parametrize(("features", "artifacts"), [(0, [OWN, OTHER]), (1, [OWN])])
def test_an_event_names_its_artifacts_from_its_level_on(features: int, artifacts: list[str]) -> None:
    """Below it, the text of the result counts, and no field is recorded or requested; an audit reads both alike."""
    thread = loaded_thread(features=features)
    thread.reply(calls("look"))
    (running,) = thread.waiting(ToolRequest)
    assert running.request.names_artifacts == bool(features)  # type: ignore[union-attr]
    thread.end(running, ToolOutcome(status="ok", content=CONTENT, artifacts=(OWN,)))
    finished = thread.log[-1]
    assert isinstance(finished, ToolCallFinished)
    assert finished.artifacts == ((OWN,) if features else ())
    assert list(artifacts_of(finished, named=bool(features))) == artifacts
    audit = Audit("t")
    audit.take(thread.log)
    assert (audit.fault, sorted(audit.artifacts)) == (None, artifacts)
    thread.check_consistent()


def test_the_artifact_of_a_clipped_text_counts_at_every_level() -> None:
    """The artifact of a clipped text has a field of its own since the first release."""
    finished = ToolCallFinished(number=1, status="ok", content=CONTENT, artifact=OWN)
    assert list(artifacts_of(finished, named=True)) == [OWN]
    assert list(artifacts_of(finished, named=False)) == [OWN, OWN, OTHER]
