"""Agents with a small real LLM on llama.cpp's server, which has all three APIs. `make test-llm` installs both.

The LLM is too small to call tools: what counts is that a foreign server writes the streams. The tests are not part of
the default ones, and are skipped if the LLM is not installed.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Agent, Catalog, LLMOptions
from holdfast.config.settings import Settings
from holdfast.core.log.events import LLMReplied
from holdfast.endpoints.endpoints import open_endpoints
from holdfast.testing import say
from tests.support.rig import StartRig, check_thread
from tests.support.streamed import drafts, read_all, streamed

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-llm"
TASK = "The colour of the sky is"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the server, with the LLM loaded."""
    if not (ENVIRONMENT / "installed.lock").is_file():
        pytest.skip("the LLM is not installed: `make test-llm` installs it")
    command = [ENVIRONMENT / "bin" / "python", Path(__file__).with_name("serve.py"), ENVIRONMENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), "the server did not start"
        yield address
        process.stdin.close()


def settings_of(address: str) -> Settings:
    """Return settings in which the server is every API's endpoint."""
    environ = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    dead = '{"dead": {"api": "chat", "base_url": "http://127.0.0.1:9/v1"}}'
    environ |= {"ANTHROPIC_BASE_URL": address, "HOLDFAST_LLM_ENDPOINTS": dead}
    return Settings.from_env(environ, root=Path("/nowhere"))


async def run_twice(rig: StartRig, address: str, *order: str) -> list[LLMReplied]:
    """Run an agent twice; return the replies, which readers have seen as they are recorded."""
    agent = Agent(
        name="clerk", instructions="You answer in one line.", tools=(), llm=order, llm_options=LLMOptions(max_tokens=60)
    )
    replies: list[LLMReplied] = []
    async with (
        open_endpoints(settings_of(address), dev=False, say=print) as endpoints,
        streamed(rig, Catalog(agents=[agent]), lambda _: say("no"), llm=endpoints, default_llm="g") as (worker, hub),
    ):
        for _ in range(2):
            run = await worker.start(TASK)
            items = await read_all(worker, hub, run.id)
            (replied,) = [each for each in await check_thread(worker.client, run) if isinstance(each, LLMReplied)]
            assert replied.message
            assert (await run.result())["result"] == replied.message.text
            # The reply may be recorded before a reader has its last pieces.
            assert replied.message.text.startswith(drafts(items)[replied.position])
            replies.append(replied)
    return replies


@pytest.mark.parametrize("llm", ["chat/gemma", "openai/gemma", "anthropic/gemma"])
async def test_a_real_llm_is_streamed_counted_and_cached_at_each_api(rig: StartRig, address: str, llm: str) -> None:
    """The reply is recorded as it came, with its tokens; the same prefix is read from the server's cache."""
    first, second = await run_twice(rig, address, llm)
    for reply in (first, second):
        assert reply.message
        assert reply.message.text.strip()
        assert reply.attempt == 1
        assert reply.usage.prompt_tokens > 10
        assert reply.usage.completion_tokens > 0
    assert second.usage.cached_tokens > 0


async def test_a_real_llm_takes_over_from_an_endpoint_that_is_down(rig: StartRig, address: str) -> None:
    """The log says what was passed over."""
    first, second = await run_twice(rig, address, "dead/gemma", "chat/gemma")
    for reply in (first, second):
        assert reply.endpoint == "chat"
        assert [each.llm for each in reply.passed_over] == ["dead/gemma"]
