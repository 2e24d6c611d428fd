"""Names of LLMs, their orders and options, as agents have them and runs record them."""

import pytest
from pydantic import ValidationError

from holdfast import Agent, Catalog, LLMOptions
from holdfast.core.agents.agent import AgentSpec, llms_of
from holdfast.core.llm.names import recorded_llms
from holdfast.core.run.rules.budget import REPLY_TOKENS, reply_tokens
from holdfast.core.run.state.state import RunState
from tests.support.runs import agent_spec

ENDPOINTS = ("anthropic", "chat", "openai", "router")


@pytest.mark.parametrize(
    ("given", "llm", "llms"),
    [
        ("gpt-5", "gpt-5", ()),
        ("meta-llama/Llama-4", "meta-llama/Llama-4", ()),
        ("anthropic/claude", "claude", ("anthropic/claude",)),
        ("chat/anthropic/claude", "anthropic/claude", ("chat/anthropic/claude",)),
        ("anthropic/", "anthropic/", ()),
        (("router/a/b", "gpt-5", "x/y"), "a/b", ("router/a/b", "chat/gpt-5", "chat/x/y")),
        (("gpt-5", "chat/gpt-5"), "gpt-5", ("chat/gpt-5",)),
    ],
)
def test_a_name_is_an_endpoints_only_if_that_exists(
    given: str | tuple[str, ...], llm: str, llms: tuple[str, ...]
) -> None:
    """Only the first slash counts, and only after the name of an endpoint; a plain name alone is recorded as before."""
    assert recorded_llms(given, ENDPOINTS) == (llm, llms)


@pytest.mark.parametrize("llm", ["", " a", "a\nb", "x" * 201, (), ("a", "a"), tuple("abcdefghi"), ("a", "")])
def test_a_name_or_an_order_that_cannot_be_used_is_rejected(llm: str | tuple[str, ...]) -> None:
    """An order has one to eight LLMs, each once; a name is one line without blanks around it."""
    with pytest.raises(ValidationError):
        Agent(name="a", instructions="x", llm=llm)


def test_a_plain_agent_is_recorded_as_by_earlier_releases() -> None:
    """Without an order and options, no field is added, so its hash and its requests stay as they are."""
    plain = Catalog(agents=[Agent(name="a", instructions="x")]).spec("a", default_llm="m")
    assert not {"llms", "options"} & plain.recorded.keys()
    assert llms_of(plain) == ("m",)


def test_options_are_recorded_with_the_agent() -> None:
    """A run keeps the options with which it began."""
    options = LLMOptions(effort="low", fields={"anthropic": {"speed": "fast"}})
    agent = Agent(name="a", instructions="x", llm=("anthropic/c", "m"), llm_options=options)
    spec = Catalog(agents=[agent]).spec("a", default_llm="-")
    read = AgentSpec.model_validate(spec.recorded)
    assert (read.options, read.llms, read.llm_options) == (options, ("anthropic/c", "chat/m"), {})
    assert read.hash == spec.hash
    with pytest.raises(ValidationError, match="by endpoint"):
        LLMOptions(fields={"anthropic/c": {}})
    with pytest.raises(ValidationError, match="max_tokens"):
        LLMOptions(max_token=3)  # type: ignore[call-arg]


def test_a_budget_reserves_the_longest_reply_of_an_order() -> None:
    """The limit of each LLM counts: its endpoint's own field, the option, or the usual expectation."""

    def reserved(options: LLMOptions, *llms: str) -> int:
        return reply_tokens(RunState(spec=agent_spec(llms=llms, options=options)))

    assert reserved(LLMOptions(), "anthropic/c") == REPLY_TOKENS
    assert reserved(LLMOptions(max_tokens=100)) == 100
    fields = {"anthropic": {"max_tokens": 300}}
    assert reserved(LLMOptions(max_tokens=100, fields=fields), "anthropic/c", "chat/m") == 300
    assert reserved(LLMOptions(fields=fields), "anthropic/c", "chat/m") == REPLY_TOKENS
