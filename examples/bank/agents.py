"""A bank's support agent: the program says whom it talks to, and the LLM cannot.

    python -m holdfast.examples.bank.agents 4711 "Block my card, please: my PIN is 0815."

The typed context names the customer. The tools read it, so no argument of the LLM selects an account. The instructions
greet the customer, and a tool appears only for those who may use it. Once the PIN is right, `verify` changes the
context; the policy lets a card be blocked only for verified customers.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel

import holdfast
from holdfast import (
    Agent,
    Catalog,
    Context,
    ContextUpdate,
    NotDone,
    Policy,
    Resource,
    RunContext,
    allow,
    ask,
    deny,
    tool,
)
from holdfast.testing import Conversation, Reply, call, say


class Customer(BaseModel):
    """The customer of one conversation."""

    number: str
    name: str
    tier: Literal["standard", "gold"] = "standard"
    verified: bool = False


@dataclass
class Account:
    """An account of the bank."""

    cents: int
    pin: str
    card_blocked: bool = False


@dataclass
class Bank:
    """The bank's own system, in memory."""

    accounts: dict[str, Account] = field(default_factory=dict)


@asynccontextmanager
async def bank() -> AsyncIterator[Bank]:
    """Open the bank's system."""
    yield Bank({"4711": Account(cents=12_350, pin="0815"), "4712": Account(cents=99, pin="1234")})


@tool(effect="read")
def balance(customer: Context[Customer], bank: Resource[Bank]) -> str:
    """Return the balance of the customer's account."""
    cents = bank.accounts[customer.number].cents
    return f"{cents / 100:.2f} EUR"


@tool(effect="read", writes=("verified",))
def verify(
    pin: Annotated[str, "The PIN that the customer has said"], customer: Context[Customer], bank: Resource[Bank]
) -> str | ContextUpdate:
    """Check the customer's PIN."""
    if bank.accounts[customer.number].pin != pin:
        return "That PIN is wrong."
    return ContextUpdate("The customer is verified.", {"verified": True})


@tool(effect="idempotent")
def block_card(customer: Context[Customer], bank: Resource[Bank]) -> str:
    """Block the customer's card."""
    bank.accounts[customer.number].card_blocked = True
    return "The card is blocked."


@tool(effect="idempotent", not_done_on=(KeyError,))
def raise_limit(euros: Annotated[int, "The new limit"], customer: Context[Customer], bank: Resource[Bank]) -> str:
    """Raise the daily limit of the customer's card, in euros."""
    if bank.accounts[customer.number].card_blocked:
        raise NotDone("the card is blocked")
    return f"The limit is {euros} EUR."


def instructions(customer: Context[Customer], run: RunContext) -> str:
    """Write the system message of one conversation."""
    return (
        f"You are the support agent of a bank, and talk to {customer.name}, a {customer.tier} customer. "
        f"Today is {run.at:%A, %d %B %Y}. Verify the customer's PIN before you change anything."
    )


def tools(customer: Context[Customer]) -> list[str]:
    """Select the tools of one conversation: only gold customers can raise their limit here."""
    gold = ["raise_limit"] if customer.tier == "gold" else []
    return ["balance", "verify", "block_card", *gold]


support = Agent(
    name="support",
    instructions=instructions,
    tools=tools,
    context=Customer,
    policy=Policy(
        rules=(
            allow("block_card", when="context.verified"),
            deny("block_card", reason="the customer is not verified"),
            ask("raise_limit", reason="a person decides on limits"),
        )
    ),
)

catalog = Catalog(agents=[support], tools=[balance, verify, block_card, raise_limit], resources=[bank])

CUSTOMERS = {"4711": Customer(number="4711", name="Ann", tier="gold"), "4712": Customer(number="4712", name="Bob")}
"""The customers who have logged in; your program knows its own."""


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    pin = re.search(r"\b\d{4}\b", conversation.last_user_message)
    match conversation.replies:
        case 0:
            return call("verify", pin=pin.group() if pin else "")
        case 1:
            return call("block_card")
        case _:
            return say(conversation.results[-1])


async def main(number: str = "4711", question: str = "Block my card, please: my PIN is 0815.") -> None:
    """Answer one question of a customer."""
    result = await holdfast.run(catalog, question, context=CUSTOMERS[number], script=script)
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
