"""The agent: its tools, its policy, which says which calls need approval, and a script for use without an LLM."""

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.testing import call, say, steps


@tool(effect="read")
def open_invoices(customer: str) -> list[str]:
    """List a customer's open invoices."""
    return ["2026-17"]  # from your billing system


@tool(effect="unsafe")  # after a crash in the middle, a person says whether it happened
def send_reminder(invoice: str, text: str) -> str:
    """Send a reminder for an invoice to the customer."""
    return f"sent for {invoice}: {text}"  # by your billing system


dunning = Agent(
    name="dunning",
    instructions="You remind customers of open invoices, politely and in one sentence.",
    tools=[open_invoices, send_reminder],
    policy=Policy(rules=(allow("open_*"), ask("send_*", reason="a customer reads it"))),
)

catalog = Catalog(agents=[dunning])

# The LLM's replies in tests, and in `holdfast worker --dev` without a key.
script = steps(
    [
        call("open_invoices", customer="4711"),
        call("send_reminder", invoice="2026-17", text="May we remind you of invoice 2026-17?"),
        say("I have reminded customer 4711 of invoice 2026-17."),
    ]
)
