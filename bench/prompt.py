"""`python -m bench.prompt`: the time to assemble a prompt of 1,000 messages with a warm cache.

It measures the work of `call_llm` before sending: append the last step's messages, verify the digest, join the request.
"""

import time
from statistics import median
from typing import Annotated

import openai
import typer

from bench import document
from bench.environment import observation
from holdfast import Agent, Catalog, Memory, Skill, tool
from holdfast.activities.llm_calls.transcript_cache import CachedTranscript
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, ToolMessage, UserMessage
from holdfast.core.transcript.transcript import TranscriptRef, ref_digest
from holdfast.endpoints.endpoints import Endpoints, Route

LIMIT_MS = 2.0
"""The time limit at 1,000 messages."""


@tool(effect="read")
def observe(n: int) -> str:
    """Look at something."""
    return str(n)


def agent() -> AgentSpec:
    """Return the recorded form of an agent with thirty skills and strategies."""
    skills = [Skill(f"skill-{n}", "Use it for one of thirty tasks. " * 3, {"SKILL.md": b"x"}) for n in range(30)]
    memory = Memory(skills=2_000, strategies=1_000)
    catalog = Catalog(
        agents=[Agent(name="a", instructions="Work. " * 200, memory=memory, tools=[observe])], skills=skills
    )
    return catalog.spec("a", default_llm="m").model_copy(update={"strategies": "Test first.\n" * 100})


def warm(spec: AgentSpec, messages: int, text: str) -> CachedTranscript:
    """Return a worker's cached transcript with that many messages."""
    endpoints = Endpoints.only(openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1"))
    (route,) = endpoints.routes(spec)
    assert isinstance(route, Route)
    cached = CachedTranscript(0, spec, route, route.prefix(spec))
    cached.append(UserMessage(content="The task, and what was recalled."))
    while len(cached.messages) < messages:
        number = len(cached.messages)
        call = ToolCall(id=f"c{number}", name="observe", arguments=f'{{"n":{number}}}')
        cached.append(AssistantMessage(content=(call,)))
        cached.append(ToolMessage(tool_call_id=call.id, content=text))
    return cached


def step(cached: CachedTranscript, number: int, text: str) -> bytes:
    """Make one step: append a reply and its result, check the workflow's reference, and build the body."""
    call = ToolCall(id=f"s{number}", name="observe", arguments=f'{{"n":{number}}}')
    result = ToolMessage(tool_call_id=call.id, content=text)
    cached.reply, cached.results = AssistantMessage(content=(call,)), {call.id: result}
    for message in cached.expected_messages():
        cached.append(message)
    length = len(cached.messages)
    ref = TranscriptRef(length=length, digest=ref_digest(cached.heads[length], cached.spec.hash))
    assert cached.matches(ref)
    return cached.route.adapter.body(cached.prefix, cached.messages[: ref.length])


def measure(messages: int, rounds: int) -> tuple[float, float, int]:
    """Return the median and 95th percentile of a step in milliseconds, and the bytes of the last request."""
    text, spec = observation(), agent()
    cached = warm(spec, messages, text)
    times, body = [], b""
    for number in range(rounds):
        cached.truncate(messages)
        began = time.perf_counter()
        body = step(cached, number, text)
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return median(times), times[len(times) * 19 // 20], len(body)


def main(
    rounds: Annotated[int, typer.Option(min=20)] = 200,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Measure at 10, 100 and 1,000 messages. Takes a second."""
    lines = []
    for messages in (10, 100, 1_000):
        middle, slow, size = measure(messages, rounds)
        lines.append(f"- {messages:,} messages, {size:,} bytes: median {middle:.2f} ms, 95th percentile {slow:.2f} ms")
    print("\n".join(lines))
    if write:
        about = (
            f"`python -m bench.prompt`: assembling a request with a warm cache; the limit at 1,000 is {LIMIT_MS:g} ms."
        )
        document.write("prompt", "\n".join(["## Assembling a prompt", "", about, "", *lines]))


if __name__ == "__main__":
    typer.run(main)
