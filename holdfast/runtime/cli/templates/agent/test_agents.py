"""Run with `pytest`."""

from agents import catalog, send_reminder


def test_a_reminder_names_its_invoice() -> None:
    """A tool is still a function: call it with what the LLM would send."""
    assert send_reminder("2026-17", "Hello") == "sent for 2026-17: Hello"


def test_a_person_approves_reminders() -> None:
    """The policy allows what only reads, and asks before a customer gets anything."""
    rules = catalog.agents["dunning"].policy.rules
    assert [rule.label for rule in rules] == ["allow open_*", "ask send_*"]
