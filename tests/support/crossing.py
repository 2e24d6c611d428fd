"""The catalog of the crossing test: an agent with an LLM at each API, in an order."""

from holdfast import Agent, Catalog, tool


@tool(effect="read")
def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


catalog = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            tools=[look],
            llm=["anthropic/claude", "openai/gpt", "chat/small"],
        )
    ]
)
