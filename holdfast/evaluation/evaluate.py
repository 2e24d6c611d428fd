"""Evaluates a dataset of recorded runs, several at a time."""

import asyncio
from pathlib import Path

from temporalio.service import RPCError

from holdfast.errors import FileUnreadable, HoldfastError, NotPlayable
from holdfast.evaluation.compare.datasets import Dataset, DatasetRun
from holdfast.evaluation.compare.evaluation import Evaluation, expected
from holdfast.evaluation.files import read_run
from holdfast.evaluation.runner import EvalRunner

AT_ONCE = 4
"""The number of concurrent reruns."""


async def evaluate_dataset(
    runner: EvalRunner, folder: Path, dataset: Dataset, *, agent: str | None = None
) -> list[Evaluation]:
    """Rerun the runs of a dataset, and return their evaluations in its order.

    Args:
        runner: Reruns them.
        folder: The folder of the dataset.
        dataset: The dataset.
        agent: The agent of all reruns; None for the dataset's, or for the one with the recorded name.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def evaluate(run: DatasetRun) -> Evaluation:
        async with slots:
            return await evaluate_run(runner, folder, run, agent=agent)

    return list(await asyncio.gather(*map(evaluate, dataset.run)))


async def evaluate_run(runner: EvalRunner, folder: Path, run: DatasetRun, *, agent: str | None = None) -> Evaluation:
    """Rerun a run of a dataset, and check its expectations. A run that cannot be rerun fails them."""
    try:
        recording = await read_run(folder / run.file)
        evaluation = await runner.rerun(recording, run=run.file, agent=agent or run.agent, stubs=run.stub)
    except (FileUnreadable, NotPlayable) as error:
        return Evaluation(run=run.file, unplayable=str(error))
    except (HoldfastError, RPCError) as error:
        return Evaluation(run=run.file, unplayable=f"{run.file}: its rerun failed: {error}")
    return expected(evaluation, run.expect, result_has=run.result_has)
