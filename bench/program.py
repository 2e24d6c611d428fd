"""The program that `bench.programs` kills: one process that is servers, worker and client, as a user writes it.

    python -m bench.program FOLDER

It reads the names of rounds from its standard input. For each, a forked process does the round's tasks with
`holdfast.running`, and writes their results to FOLDER; so a killed one is run again without importing everything again.
"""

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import holdfast
import holdfast.hosting.host  # before the fork
from holdfast import Agent, Catalog, Client, HoldfastError, Limits, PendingRequest, Policy, allow, ask
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.outside import charge, look, mail, transfer

TASKS = 8
"""Tasks of a round, side by side."""
TURNS = (
    ("charge", "mail", "look"),
    ("transfer", "charge"),
    ("mail", "charge", "transfer"),
    ("look", "charge", "mail"),
)
"""The calls of each reply."""
SERVED = "served"
OPENED = "opened"
"""The file that says that the agents run."""

catalog = Catalog(
    agents=[
        Agent(
            name="shop",
            instructions="Serve the order.",
            tools=[charge, transfer, mail, look],
            policy=Policy(rules=(ask("transfer"), allow())),
            limits=Limits(repeats_slowed=0, repeats_warned=0, repeats_asked=0),
        )
    ],
)


def script(conversation: Conversation) -> Reply:
    """Call the tools of each turn, then end."""
    turn = conversation.replies
    if turn == len(TURNS):
        return say(SERVED)
    return together(*(call(name, order=f"{turn}") for name in TURNS[turn]))


def tasks(turn: str) -> list[str]:
    """Return the tasks of a round."""
    return [f"Serve order {turn}.{number}" for number in range(TASKS)]


def happened(key: str) -> bool:
    """Whether a mail was sent: a person looks into the outbox."""
    outbox = Path(os.environ["OUTSIDE_FILE"])
    return outbox.exists() and key in outbox.read_text().split()


def answer(request: PendingRequest) -> str | None:
    """Return a person's decision; None while it is too early to tell."""
    if request.kind == "approval":
        return "approve"
    if request.settles_at is not None and request.settles_at.timestamp() > time.time():
        return None
    return "happened" if happened(request.effect_key) else "absent"


async def decide(client: Client) -> None:
    """Decide all requests until cancelled."""
    while True:
        for waiting in await client.threads(status="waiting_approval"):
            thread = client.thread(waiting.thread)
            with suppress(HoldfastError):  # decided meanwhile, or the run continues
                for request in await thread.pending():
                    if decision := answer(request):
                        await thread.decide(request, decision)  # type: ignore[arg-type]
        await asyncio.sleep(0.1)


async def main(folder: Path, turn: str) -> None:
    """Do the tasks of a round, and write their results."""
    async with holdfast.running(catalog, script=script, by="dana") as client:
        (folder / OPENED).touch()
        deciding = asyncio.create_task(decide(client))
        results = await asyncio.gather(*(holdfast.run(catalog, task) for task in tasks(turn)))
        deciding.cancel()
    draft = folder / f"{turn}.draft"
    draft.write_text(json.dumps({result.thread: result.text for result in results}))
    draft.rename(folder / f"{turn}.json")


def serve(folder: Path) -> None:
    """Fork a process for each line of the standard input, and wait for its end."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                asyncio.run(main(folder, line.strip()))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
