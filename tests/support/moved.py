"""The catalog and the script of runs that migrate between clusters: their waits and their calls."""

import re
import zlib

from holdfast import Agent, Catalog, Limits, Policy, allow, ask
from holdfast.testing import Conversation, Reply, call, say, slow, together
from tests.support.outside import charge, look, mail, transfer

TURNS: tuple[tuple[str, ...], ...] = (
    ("charge", "look"),
    ("mail", "wait"),
    ("transfer", "helper"),
    ("sleep",),
    ("charge", "mail", "transfer"),
    ("behind", "wait"),
    ("answer", "charge"),
    ("nap", "transfer"),
)
"""The LLM's calls, repeatedly: effects of all classes, waits of all kinds, sub-agents waited for or not."""

END = "That is all: finish."
"""A message after which a run ends."""

_THREAD = re.compile(r"in thread (\S+)\. `agent_result`")


def script(conversation: Conversation) -> Reply:
    """Make the next call, until the message ends the run; each reply takes up to half a second."""
    seconds = zlib.crc32(str(conversation.messages[-1]).encode()) % 100 / 200
    if "Help with" in str(conversation.messages[1]["content"]):
        return slow(call("charge", order="help") if not conversation.replies else say("helped"), seconds)
    if any(END in str(message["content"]) for message in conversation.messages if message["role"] == "user"):
        return say("served")
    order = str(conversation.replies)
    behind = _THREAD.findall(str(conversation.messages))
    calls = {
        "wait": call("wait_for_event", name="paid"),
        "sleep": call("sleep_until", until="2h"),
        "nap": call("sleep_until", until="1s"),
        "helper": call("run_agent", agent="helper", task=f"Help with {order}."),
        "behind": call("run_agent", agent="helper", task=f"Help with {order}.", background=True),
        "answer": call("agent_result", thread=behind[-1]) if behind else call("look", order=order),
    }
    turn = TURNS[conversation.replies % len(TURNS)]
    return slow(together(*(calls.get(each) or call(each, order=order) for each in turn)), seconds)


LIMITS = Limits(history_events=60, max_steps=100_000, repeats_slowed=0, repeats_warned=0, repeats_asked=0)

catalog = Catalog(
    agents=[
        Agent(
            name="shop",
            instructions="Serve the order.",
            policy=Policy(rules=(ask("mail", reason="it leaves the house"), allow())),
            tools=("charge", "transfer", "mail", "look"),
            dormancy=True,
            subagents=("helper",),
            limits=LIMITS,
        ),
        Agent(
            name="helper",
            instructions="Help.",
            description="helps",
            tools=("charge",),
            policy=Policy(rules=(allow(),)),
            limits=LIMITS,
        ),
    ],
    tools=[charge, transfer, mail, look],
)
