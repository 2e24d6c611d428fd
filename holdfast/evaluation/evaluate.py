"""Evaluates a set of recorded runs, several at a time."""

import asyncio
from pathlib import Path

from temporalio.service import RPCError

from holdfast.errors import FileUnreadable, HoldfastError, NotPlayable
from holdfast.evaluation.compare.datasets import EvalSet, RunOf
from holdfast.evaluation.compare.evaluation import Evaluation, expected
from holdfast.evaluation.files import read_run
from holdfast.evaluation.runner import Player

AT_ONCE = 4
"""How many runs are played at the same time."""


async def evaluate_set(player: Player, folder: Path, given: EvalSet, *, agent: str | None = None) -> list[Evaluation]:
    """Play the runs of a set, and return their evaluations in its order.

    Args:
        player: Plays them.
        folder: The folder of the set.
        given: The set.
        agent: The agent that plays all of them; None for the set's, or for the one of the recorded name.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def evaluated(run: RunOf) -> Evaluation:
        async with room:
            return await evaluate_run(player, folder, run, agent=agent)

    return list(await asyncio.gather(*map(evaluated, given.run)))


async def evaluate_run(player: Player, folder: Path, run: RunOf, *, agent: str | None = None) -> Evaluation:
    """Play a run of a set, and say what of it does not hold. A run that cannot be played is one that does not hold."""
    try:
        recording = await read_run(folder / run.file)
        found = await player.play(recording, run=run.file, agent=agent or run.agent, stubs=run.stub)
    except (FileUnreadable, NotPlayable) as error:
        return Evaluation(run=run.file, unplayable=str(error))
    except (HoldfastError, RPCError) as error:
        return Evaluation(run=run.file, unplayable=f"{run.file}: its play failed: {error}")
    return expected(found, run.expect, result_has=run.result_has)
