"""The rows of a list, without a server."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from holdfast.client import listing
from holdfast.client.threads import JSON, Threads
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW
from holdfast.errors import AnswerForged, NoWorker


def run(name: str, status: str = "RUNNING", kind: str = WORKFLOW) -> WorkflowExecution:
    """Return Temporal's description of a run."""
    described = SimpleNamespace(id=name, run_id=name, status=WorkflowExecutionStatus[status], workflow_type=kind)
    return cast(WorkflowExecution, described)


async def test_a_row_says_whether_a_worker_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, the values of an open run are Temporal's index, which lags; those of a closed run are final, and
    those of a loop and of a foreign run are not asked for or known.
    """
    failures: dict[str, Exception] = {
        "silent": NoWorker("nobody"),
        "closed": NoWorker("nobody"),
        "foreign": AnswerForged("not ours"),
    }

    async def row(threads: Threads, run: WorkflowExecution) -> JSON:
        return {"thread": run.id, "status": "running", "unanswered": False}

    async def reported(threads: Threads, run: WorkflowExecution) -> JSON:
        if run.id in failures:
            raise failures[run.id]
        return {"status": "waiting_approval"}

    async def own_row(threads: Threads, thread: str) -> JSON:
        return {"run_id": thread}

    for name, fake in {"_row": row, "_reported": reported, "_own_row": own_row}.items():
        monkeypatch.setattr(listing, name, fake)
    found = [run("answers"), run("silent"), run("closed", "COMPLETED"), run("foreign"), run("loop", kind=LOOP_WORKFLOW)]
    rows: list[Any] = await listing._rows(cast(Threads, None), found, None)
    assert {each["thread"]: each["unanswered"] for each in rows} == {
        "answers": False,
        "silent": True,
        "closed": False,
        "foreign": False,
        "loop": False,
    }
