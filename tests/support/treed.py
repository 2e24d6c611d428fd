"""The catalog and script of the kill tests of trees, and the check that logs, accounts and effects of a tree agree.

A tree is a plan: the effects of each member, and the members that it runs. The plan is the task of the root, and each
part of it that of a sub-agent, so the script is a pure function of the conversation.
"""

import json
import random
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

from holdfast import Agent, Budget, Catalog, Limits, Policy, allow
from holdfast.core.base.models import Frozen
from holdfast.testing import Conversation, Reply, call, say, slow, together
from tests.support.outside import charge, ship, transfer

LLM = "gpt-4o-mini"
"""An LLM with a list price: trees have budgets of money."""

DEPTH, WIDTH, LARGEST = 3, 5, 15
"""Levels below the root, sub-agents of a run, and runs of a tree."""

_THREAD = re.compile(r"in thread (\S+)\. `agent_result`")


class Member(Frozen):
    """The actions of one run of a tree."""

    name: str
    effects: tuple[str, ...] = ()
    """The tools that it calls at first."""
    awaited: tuple["Member", ...] = ()
    """Sub-agents that it waits for at once."""
    background: tuple["Member", ...] = ()
    """Sub-agents whose answers it reads later."""
    dropped: tuple["Member", ...] = ()
    """Sub-agents in the background whose answers it never reads: its end cancels them."""

    def walk(self) -> Iterator["Member"]:
        """Yield it and all members below it."""
        yield self
        for below in (*self.awaited, *self.background, *self.dropped):
            yield from below.walk()


def plan(name: str, chance: random.Random) -> Member:
    """Return a random tree of at most `LARGEST` runs."""
    return _member(name, chance, levels=DEPTH, room=[LARGEST - 1])


def _member(name: str, chance: random.Random, *, levels: int, room: list[int]) -> Member:
    wanted = chance.randint(2, WIDTH) if levels == DEPTH else chance.choice((0, 0, 1, 2, WIDTH))
    count = min(wanted, room[0]) if levels else 0
    room[0] -= count
    kinds: dict[str, list[Member]] = {"awaited": [], "background": [], "dropped": []}
    for number in range(count):
        kind = chance.choices(list(kinds), weights=(6, 3, 1))[0]
        kinds[kind].append(_member(f"{name}-{number}", chance, levels=levels - 1, room=room))
    effects = tuple(chance.sample(("charge", "transfer", "ship"), k=chance.randint(1, 2)))
    return Member(name=name, effects=effects, **{kind: tuple(chosen) for kind, chosen in kinds.items()})


def task_of(member: Member) -> str:
    """Return the task that makes a run do this."""
    return member.model_dump_json(exclude_defaults=True)


def budget_of(member: Member, *, tight: bool) -> Budget:
    """Return a budget that suffices for a tree, even if calls are lost; or one that ends in some of its runs."""
    runs = len(list(member.walk()))
    if tight:
        return Budget(steps=3 * runs, tokens=100_000 * runs, usd="5")
    return Budget(steps=100 * runs, tokens=1_000_000 * runs, usd="20")


def member_of(messages: Sequence[Mapping[str, object]]) -> Member:
    """Return the actions of a conversation's run."""
    return Member.model_validate_json(str(messages[1]["content"]))


def script(conversation: Conversation) -> Reply:
    """Make the effects and run the sub-agents; read those in the background; answer. Return a partial result at the
    budget's end.
    """
    seconds = zlib.crc32(json.dumps(conversation.messages).encode()) % 100 / 250
    return slow(_reply(conversation), seconds)


def _reply(conversation: Conversation) -> Reply:
    member, results = member_of(conversation.messages), conversation.results
    if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
        return say(f"{member.name} hands in what it has")
    if not conversation.replies:
        effects = [call(tool, order=member.name) for tool in member.effects]
        awaited = [call("run_agent", agent="member", task=task_of(each)) for each in member.awaited]
        behind = [
            call("run_agent", agent="member", task=task_of(each), background=True)
            for each in (*member.background, *member.dropped)
        ]
        return together(*effects, *awaited, *behind)
    if conversation.replies == 1:
        first = len(member.effects) + len(member.awaited)
        matches = [_THREAD.search(text) for text in results[first : first + len(member.background)]]
        if threads := [match.group(1) for match in matches if match]:
            return together(*(call("agent_result", thread=thread) for thread in threads), call("ship", order="late"))
    return say(f"{member.name} has done it")


catalog = Catalog(
    agents=[
        Agent(
            name="member",
            instructions="Do your part.",
            description="does a part",
            llm=LLM,
            llm_options={"max_completion_tokens": 400},
            policy=Policy(rules=(allow(),)),
            subagents=("member",),
            limits=Limits(
                tool_result_chars=1_000,
                history_events=60,
                max_depth=DEPTH,
                repeats_slowed=0,
                repeats_warned=0,
                repeats_asked=0,
            ),
            tools=[charge, transfer, ship],
        )
    ],
)
