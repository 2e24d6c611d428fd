"""Run with `pytest`, after `pip install pytest pytest-asyncio`."""

import pytest
from agents import catalog, script, send_reminder

from holdfast.testing import agent


def test_a_reminder_names_its_invoice() -> None:
    """A tool is still a function: call it with the arguments that the LLM would send."""
    assert send_reminder("2026-17", "Hello") == "sent for 2026-17: Hello"


@pytest.mark.asyncio
async def test_a_person_approves_reminders() -> None:
    """The agent asks before it writes to a customer, and sends the reminder once."""
    async with agent(catalog, script) as run:
        await run.task("Remind customer 4711 of what is open")
        assert [request.tool for request in await run.pending()] == ["send_reminder"]
        assert await run.effects() == []
        result = await run.approve()
        assert result.text == "I have reminded customer 4711 of invoice 2026-17."
        assert [effect.tool for effect in await run.effects()] == ["send_reminder"]
