"""Which faults of the permanent record are final, and which the next attempt of the activity may recover from."""

from collections.abc import Sequence
from typing import cast

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast.activities.calling_run import Chains
from holdfast.activities.record import record
from holdfast.activities.record.record import Record
from holdfast.core.run.contracts.error_types import RECORD_CONFLICT
from holdfast.errors import RecordConflict
from holdfast.storage.in_memory.record import InMemoryArtifacts, InMemoryThreads


class SingleChain(Chains):
    """A thread whose newest run is the calling one."""

    async def first_run_id(self, workflow_id: str, run_id: str) -> str:
        """Return the chain."""
        return "chain"

    async def current_run_id(self, workflow_id: str) -> str:
        """Return the run id of the test environment."""
        return "test-run"


class OvertakenStore(InMemoryThreads):
    """A store in which another attempt archives the branch just after this one was rejected."""

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Reject the lines."""
        raise RecordConflict("another event")


class _Run:
    id = "thread"


RUN = cast(WorkflowHandle[object, object], _Run())


async def test_a_branch_archived_by_another_attempt_is_a_temporary_conflict() -> None:
    """Two attempts run at once if heartbeats are late; the slower one is retried and does not block the run."""
    store = Record(OvertakenStore(), InMemoryArtifacts(), chains=SingleChain())
    with pytest.raises(RecordConflict):
        await ActivityEnvironment().run(store.append, "thread", 0, [b"{}"])


@pytest.mark.parametrize("status", list(RPCStatusCode))
async def test_an_unavailable_temporal_is_no_conflict(monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode) -> None:
    """Only a history that Temporal no longer has is missing for good; any other read failure is retried."""

    async def fail(thread: str, run_id: str) -> None:
        raise RPCError("no history", status, b"")

    monkeypatch.setattr(record, "events_of_run", fail)
    store = Record(InMemoryThreads(), InMemoryArtifacts(), chains=SingleChain())
    final = status is RPCStatusCode.NOT_FOUND
    with pytest.raises(ApplicationError if final else RPCError) as error:
        await ActivityEnvironment().run(store.ensure, RUN, 7, "head")
    assert not final or (isinstance(error.value, ApplicationError) and error.value.type == RECORD_CONFLICT)
