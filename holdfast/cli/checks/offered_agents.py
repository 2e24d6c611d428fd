"""Checks that a worker on the queue has an agent, before something that needs it later is recorded.

Workers that share the state folder register the agents that they offer (`holdfast.worker.takeover.registry`). Other
workers do not, so for them the command only prints a note.
"""

import asyncio
from collections.abc import Iterable

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.cli.session import Session
from holdfast.cli.text import visible
from holdfast.client.threads import Threads
from holdfast.client.workers import pollers
from holdfast.doctor.project import offers
from holdfast.errors import AgentNotFound
from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.registry import Offer
from holdfast.worker.takeover.worker_identity import parse_identity


async def fresh_workers(client: Client, task_queue: str) -> list[str]:
    """Return the identities of the workers that polled a task queue recently.

    Raises:
        RPCError: The server does not list them.
    """
    return [each.identity for each in await pollers(client, task_queue)]


async def check_offered(session: Session, threads: Threads, agents: Iterable[str | None]) -> None:
    """Check that a worker on the queue has each agent; print a note if that is unknown.

    Raises:
        AgentNotFound: All workers on the queue have registered their agents, and none has this one.
    """
    required = [agent for agent in dict.fromkeys(agents) if agent]
    if not required:
        return
    client, queue = threads.runs.client, threads.task_queue
    try:
        identities = [each for each in await fresh_workers(client, queue) if not _has_ended(each)]
    except RPCError:
        identities = []
    where = (client.service_client.config.target_host, client.namespace, queue)
    offered = await asyncio.to_thread(offers, session.settings.home, identities, *where)
    for agent in required:
        if any(agent in offer.agents for offer in offered.values()):
            continue
        if offered and len(offered) == len(identities):
            raise AgentNotFound(_not_offered(agent, queue, offered.values()))
        session.output.note(
            f"It is not known here whether a worker on the task queue {visible(queue)} has the agent {visible(agent)}: "
            "without it, each run fails."
        )


def _has_ended(identity: str) -> bool:
    """Whether a worker's process ran on this machine and has ended; the server still lists it for a while."""
    worker, here = parse_identity(identity), this_process()
    return bool(worker and here and is_gone(worker, seen_from=here))


def _not_offered(agent: str, queue: str, offered: Iterable[Offer]) -> str:
    names = ", ".join(dict.fromkeys(name for offer in offered for name in offer.agents))
    return f"no worker on the task queue {queue!r} has an agent {agent!r}; there is {names}. Nothing was recorded."
