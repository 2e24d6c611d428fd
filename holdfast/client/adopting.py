"""Have open runs adopt the policy of their workers, one by one or all that wait for it.

1. Runs that wait for hours of a policy, or for the event `policy_changed`, are found by the search attribute
   `HoldfastWaitsFor`. It lags a little, so they are searched twice.
2. A few runs adopt it at a time, the next ones when workers have answered for these. If no worker answers for any of
   them, the rest is left alone, and not woken all at once by the first worker that starts.
3. A run that has the policy already is unchanged, so an interrupted command can be repeated.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.client.interventions import intervene
from holdfast.client.publishing import LAG_SECONDS
from holdfast.client.searching import search
from holdfast.client.sending import SENT, UpdateResult
from holdfast.client.threads import Threads
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.tools.triggers import POLICY_CHANGED
from holdfast.errors import HoldfastError, ThreadNotFound

AT_ONCE = 10
"""How many runs adopt a policy at the same time."""


@dataclass
class Adoption:
    """What became of a policy's adoption by several runs, by thread id."""

    answers: dict[str, UpdateResult] = field(default_factory=dict)
    failed: dict[str, HoldfastError] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    """The threads that were left alone, because no worker answered."""


async def adopt_policy(
    threads: Threads, thread: str, policy: str, *, by: str, reason: str = "", private: str | None = None
) -> UpdateResult:
    """Have an open run adopt a policy, which a worker has for its agent.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        policy: The policy's digest.
        by: The person who asks for it.
        reason: The reason, which is logged.
        private: The private key to sign it with; None to send it unsigned.

    Returns:
        The run's outcome, such as `accepted` or `duplicate`; `sent` if no worker answers.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
        NoWorker: The run cannot take it before its agent is loaded, and no worker has loaded it in time.
    """
    return await intervene(
        threads, thread, "adopt_policy", {"policy": policy, "by": by, "reason": reason}, private=private
    )


async def adopt_where_waiting(
    threads: Threads, policy: str, *, by: str, reason: str = "", private: str | None = None
) -> Adoption:
    """Have every run adopt a policy that waits for hours of its policy, or for another one. The arguments are as for
    `adopt_policy`.

    Raises:
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND HoldfastWaitsFor = '{POLICY_CHANGED}'"
    adoption = Adoption()

    async def ask(thread: str) -> None:
        try:
            answer = await adopt_policy(threads, thread, policy, by=by, reason=reason, private=private)
            adoption.answers[thread] = answer
        except ThreadNotFound:
            pass  # it has ended meanwhile
        except HoldfastError as error:
            adoption.failed[thread] = error

    for lag in (0.0, LAG_SECONDS):
        await asyncio.sleep(lag)
        seen = {*adoption.answers, *adoption.failed}
        waiting = sorted({run.id for run in await search(threads, query)} - seen)
        while waiting:
            batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            await asyncio.gather(*map(ask, batch))
            if waiting and _is_unanswered(adoption, batch):
                adoption.left = tuple(waiting)
                return adoption
    return adoption


def _is_unanswered(adoption: Adoption, batch: Sequence[str]) -> bool:
    """Return whether no worker has answered for any of these threads; false if all of them have ended meanwhile."""
    open_threads = [thread for thread in batch if thread in adoption.answers or thread in adoption.failed]
    answers = [adoption.answers[thread] for thread in open_threads if thread in adoption.answers]
    return bool(open_threads) and all(answer.outcome == SENT for answer in answers)
