"""`holdfast.cli.screens.watch`: leaving the screen."""

import asyncio

from holdfast.cli.screens.watch import _first
from tests.support.rig import PATIENCE


async def test_leaving_ends_a_task_that_ignores_its_first_cancellation() -> None:
    """A library may lose one, and the person would wait for a screen that never closes."""
    cancelled: list[str] = []

    async def ignores_one() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.append("ignored")
        await asyncio.sleep(2 * PATIENCE)

    async def leaves() -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE):
        assert not await _first(ignores_one, leaves)
    assert cancelled == ["ignored"]
