"""Withholds updates that are too large to be answered.

The server takes an update of up to 4 MB, but the answer to it repeats all of it, and may have 2 MB
(`limit.blobSize.error`): the SDK fails the workflow task instead, and each of its retries. Without an answer, the
server itself refuses such an update when the workflow task is completed.
"""

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from holdfast.authority.statements import CLAIM_BYTES


def without_large_updates(activation: WorkflowActivation) -> WorkflowActivation:
    """Remove the updates that are too large from what is passed to a workflow. In a replay there are none."""
    large = [at for at, job in enumerate(activation.jobs) if _is_large(job)]
    for at in reversed(large):
        del activation.jobs[at]
    return activation


def _is_large(job: WorkflowActivationJob) -> bool:
    return job.HasField("do_update") and job.do_update.run_validator and job.do_update.ByteSize() > CLAIM_BYTES
