"""The agent: its tools, and the policy that says which calls a person approves."""

from holdfast import Agent, Catalog, Policy, allow, ask, tool


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
    policy=Policy(rules=(allow("open_*"), ask("send_*", reason="a customer reads it"))),
)

catalog = Catalog(agents=[dunning], tools=[open_invoices, send_reminder])
