"""The policy judges exactly what runs: no spelling of an argument or path bypasses a rule that denies its meaning."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.testing import ActivityEnvironment

from holdfast import Agent, Catalog, Policy, Tool, ToolContext, allow, ask, deny, tool
from holdfast.activities.calling_run import Chains
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.tool_calls.call_tool import Tools
from holdfast.core.agents.agent import Limits
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished, ToolCallRequested, VerdictGiven
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import Ledger
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, call_verbatim, say, steps, together
from holdfast.workspace.file_tools import workspace_tools
from tests.support.rig import StartRig, answer_of, check_thread, die, eventually
from tests.support.runs import UNGUARDED


@tool(effect="unsafe")
def deploy(target: str, force: bool = False, times: int = 1, *, context: ToolContext) -> str:
    """Deploy: append the received arguments to a file."""
    with (context.workspace / "deployed").open("a") as deployed:
        deployed.write(json.dumps([target, force, times]) + "\n")
    return f"deployed with force={force!r}"


NEVER_BY_FORCE = Policy(rules=(deny("deploy", when="args.force == true"), allow("deploy")))

FORCED = [
    '{"target": "x", "force": true}',
    '{"target": "x", "force": 1}',
    '{"target": "x", "force": 1.0}',
    '{"target": "x", "force": 1e0}',
    '{"target": "x", "force": "1"}',
    '{"target": "x", "force": "true"}',
    '{"target": "x", "force": "TRUE"}',
    '{"target": "x", "force": "True"}',
    '{"target": "x", "force": "yes"}',
    '{"target": "x", "force": "Y"}',
    '{"target": "x", "force": "on"}',
    '{"target": "x", "force": "t"}',
    '{"target": "x", "force": "\\u0074rue"}',
    '{"force": false, "target": "x", "force": true}',
    '{"force": false, "target": "x", "force": "yes"}',
    '{"target": "x", "\\u0066orce": 1}',
]
"""Every spelling that pydantic reads as true."""

MALFORMED = [
    '{"target": "x", "force": 2}',
    '{"target": "x", "force": "ja"}',
    '{"target": "x", "force": [true]}',
    '{"target": "x", "Force": true}',
    '{"target": "x", "force": true',
    '{"target": "x", "force": NaN}',
    '{"target": "x", "force": true, "times": 1e400}',
    '{"target": "\\ud800", "force": true}',
    '{"target": "x", "force": true}{"target": "x"}',
    '["x", true]',
    '"x"',
    "[" * 2_000,
    "",
]
"""Malformed arguments of this tool."""


def received(folder: Path) -> list[Any]:
    """Return the arguments of each deployment."""
    file = folder / "deployed"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_no_spelling_of_true_passes_a_rule_that_denies_it(rig: StartRig) -> None:
    """In a live run whose policy denies `args.force == true`, 16 spellings and 13 malformed ones deploy nothing."""
    forced = together(*(call_verbatim("deploy", text) for text in FORCED))
    malformed = together(*(call_verbatim("deploy", text) for text in MALFORMED))
    harmless = together(
        *(
            call_verbatim("deploy", f'{{"target": "{name}", "force": {no}}}')
            for name, no in zip("abc", ("false", "0", '"no"'), strict=True)
        )
    )
    script = steps([forced, malformed, harmless, say("done")])
    limits = Limits(**UNGUARDED)  # the spellings are one call, which is rejected again and again
    agent = Agent(name="clerk", instructions="Deploy.", policy=NEVER_BY_FORCE, limits=limits, tools=[deploy])
    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        assert (await run.result())["result"] == "done"
        assert sorted(received(r.workspace)) == [[name, False, 1] for name in "abc"]  # equal calls would be one
        events = await check_thread(r.client, run)
        ended = Counter(event.status for event in events if isinstance(event, ToolCallFinished))
        assert ended == {"denied": len(FORCED), "invalid": len(MALFORMED), "ok": 3}
        assert {event.rule for event in events if isinstance(event, VerdictGiven)} == {
            "deny deploy if args.force == true",
            "allow deploy",
        }


async def test_one_value_is_shown_approved_recorded_and_run(rig: StartRig) -> None:
    """The request shows what will run, with defaults; log and function get the same; the LLM sees its own text."""
    written = '{"times": "5", "target": "x", "force": "off"}'
    value = {"force": False, "target": "x", "times": 5}
    agent = Agent(name="clerk", instructions="Deploy.", policy=Policy(rules=(ask("deploy"),)), tools=[deploy])
    async with rig(Catalog(agents=[agent]), steps([call_verbatim("deploy", written), say("done")])) as r:
        run = await r.start()
        (request,) = (await eventually(lambda: run.query("state"), lambda state: state["pending"]))["pending"]
        assert request["arguments"] == value
        await run.signal("approve", {"request": request["request"], "by": "ann", "digest": request["digest"]})
        assert (await run.result())["result"] == "done"
        assert received(r.workspace) == [["x", False, 5]]
        events = await check_thread(r.client, run)
        (requested,) = [event for event in events if isinstance(event, ToolCallRequested)]
        assert requested.call.arguments == json.dumps(value, separators=(",", ":"), sort_keys=True)
        (sent,) = [message for message in r.llm.requests[-1].json()["messages"] if message["role"] == "assistant"]
        assert sent["tool_calls"][0]["function"]["arguments"] == written, "or the provider's cache would be lost"


async def test_an_edit_is_the_whole_value_or_nothing_runs(rig: StartRig) -> None:
    """A person's edited arguments are judged as they will run: missing defaults and other spellings are rejected."""
    agent = Agent(name="clerk", instructions="Deploy.", policy=Policy(rules=(ask("deploy"),)), tools=[deploy])
    script = steps([call("deploy", target="x"), say("done")])
    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        (request,) = (await eventually(lambda: run.query("state"), lambda state: state["pending"]))["pending"]

        async def edit(**arguments: Any) -> tuple[str, str]:
            decision = {"decision": "approve", "request": request["request"], "by": "ann", "arguments": arguments}
            answer = await answer_of(run.execute_update("decide", decision))
            return answer["outcome"], answer.get("explanation", "")

        outcome, why = await edit(target="y")
        assert (outcome, "give every parameter, also force, times" in why) == ("malformed", True)
        assert (await edit(target="y", force=1, times=1))[0] == "malformed"
        # In JSON, 2.0 is 2: the integer is recorded and runs.
        assert (await edit(target="y", force=False, times=2.0))[0] == "accepted"
        assert (await run.result())["result"] == "done"
        assert received(r.workspace) == [["y", False, 2]]
        events = await check_thread(r.client, run)
        (ended,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert ended.status == "ok"


async def test_no_spelling_of_a_path_leaves_the_folder_of_a_rule(rig: StartRig) -> None:
    """If only docs/ may be written, `docs/../src/app.py`, a link in docs/ or an absolute path changes nothing else."""
    policy = Policy(rules=(allow("write_file", when='args.path.startsWith("docs/")'), deny("write_file")))
    agent = Agent(name="writer", instructions="Write.", policy=policy, tools=workspace_tools(confine="never"))

    def script(conversation: Conversation) -> Reply:
        if conversation.replies:
            return say("\n".join(conversation.results))
        root = conversation.last_user_message
        paths = ["docs/../src/app.py", "docs/./../src//app.py", "docs/link/app.py", f"{root}/docs/../src/app.py"]
        paths += ["docs/../../workspace/src/app.py", "src/app.py", "docs/app.py", "docs/../../outside.py"]
        paths += ["docs/x/../../src/app.py", "docs//a/./b.md"]
        return together(*(call("write_file", path=path, content="changed") for path in paths))

    async with rig(Catalog(agents=[agent]), script) as r:
        (r.workspace / "src").mkdir()
        (r.workspace / "docs").mkdir()
        (r.workspace / "src" / "app.py").write_text("as it was")
        (r.workspace / "docs" / "link").symlink_to("../src")
        (r.workspace / "docs" / "app.py").symlink_to("../src/app.py")
        run = await r.start(str(r.workspace))
        result = (await run.result())["result"]
        assert (r.workspace / "src" / "app.py").read_text() == "as it was"
        written = {path.relative_to(r.workspace).as_posix() for path in r.workspace.rglob("*.*") if path.is_file()}
        assert written == {"src/app.py", "docs/app.py", "docs/a/b.md"}
        assert "docs/link is a link to src; name src/app.py instead" in result
        assert "docs/app.py is a link to src/app.py; name src/app.py instead" in result
        ended = Counter(e.status for e in await check_thread(r.client, run) if isinstance(e, ToolCallFinished))
        assert ended == {"denied": 7, "failed": 2, "ok": 1}


async def test_a_condition_on_paths_holds_for_tools_that_take_plain_text(rig: StartRig) -> None:
    """If a user's tool takes `str` and the policy judges `paths`, the secret is not read."""

    @tool(effect="read")
    def show(path: str, context: ToolContext) -> str:
        """Show a file."""
        return (context.workspace / path).read_text()

    policy = Policy(rules=(deny("show", when='paths.path.startsWith("private/") || paths.path == "private"'), allow()))
    agent = Agent(name="reader", instructions="Read.", policy=policy, tools=[show])

    def script(conversation: Conversation) -> Reply:
        if conversation.replies:
            return say("\n".join(conversation.results))
        root = conversation.last_user_message
        paths = ["private/key", "./private/key", "docs/../private/key", "private//key", f"{root}/private/key"]
        paths += [
            "../workspace/private/key",
            f"{root}//docs/..//private/./key",
            "x/" * 3_000 + "../" * 3_000 + "private/key",
        ]
        return together(*(call("show", path=path) for path in [*paths, "docs/open"]))

    async with rig(Catalog(agents=[agent]), script) as r:
        for name, text in (("private/key", "SECRET"), ("docs/open", "for all")):
            (r.workspace / name).parent.mkdir()
            (r.workspace / name).write_text(text)
        run = await r.start(str(r.workspace))
        result = (await run.result())["result"]
        assert "SECRET" not in result
        assert "for all" in result
        assert result.count("Denied by policy") == 8


Attempt = Callable[..., Any]


@pytest.fixture
def attempt(pool: AsyncConnectionPool, database_url: str, tmp_path: Path) -> Attempt:
    """Return a function that has a worker with this tool run a request; the effect key is the same within a test."""
    key = uuid4().hex

    async def run(catalogued: Tool, arguments: str) -> ToolOutcome:
        tools = Tools(
            Catalog(agents=[Agent(name="a", instructions="", tools=[catalogued])]),
            Ledger(pool, database_url),
            Chains(),
            TranscriptCache(PostgresThreads(pool)),
            PostgresArtifacts(pool),
        )
        order = ToolCall(id="c", name=catalogued.spec.name, arguments=arguments)
        request = ToolRequest(call=order, key=key, first_run_id="run", workspace=str(tmp_path))
        outcome: ToolOutcome = await ActivityEnvironment().run(tools.call_tool, request)
        return outcome

    return run


def other_deploy(target: str, force: bool = True, times: int = 1, *, context: ToolContext) -> str:
    """Deploy, as in another worker's release: by force unless the arguments say otherwise."""
    return str(deploy(target, force, times, context=context))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"target":"x"}',
        '{"target":"x","times":1}',
        '{"force":1,"target":"x","times":1}',
        '{"force":"yes","target":"x","times":1}',
        '{"target":"x","force":true,"times":1}',
        '{"force":true, "target":"x","times":1}',
        '{"force":false,"force":true,"target":"x","times":1}',
        '{"force":true,"target":"x","times":1.0}',
        '{"force":true,"target":"x","times":"1"}',
        "",
    ],
)
async def test_a_worker_rejects_a_request_that_it_reads_differently(
    attempt: Attempt, tmp_path: Path, arguments: str
) -> None:
    """A worker with another catalog rejects arguments that differ in any byte from its own tool's canonical form."""
    outcome = await attempt(tool(name="deploy", effect="unsafe")(other_deploy), arguments)
    assert outcome.status == "invalid"
    assert outcome.content.startswith("Not called: ")
    assert received(tmp_path) == []


async def test_a_request_in_canonical_form_runs(attempt: Attempt, tmp_path: Path) -> None:
    """As a control, the canonical form of the same arguments runs, once."""
    for _ in range(2):
        assert (await attempt(deploy, '{"force":true,"target":"x","times":1}')).status == "ok"
    assert received(tmp_path) == [["x", True, 1]]


async def test_an_interrupted_effect_is_never_reported_as_not_started(attempt: Attempt, tmp_path: Path) -> None:
    """If one worker started it and another cannot decode its arguments, the outcome is unknown."""

    async def dies(target: str, *, context: ToolContext) -> None:
        """Deploy, then die."""
        deploy(target, context=context)
        await die()

    arguments = '{"target":"x"}'
    with pytest.raises(asyncio.CancelledError):
        await attempt(tool(name="deploy", effect="unsafe")(dies), arguments)
    outcome = await attempt(deploy, arguments)
    assert outcome.status == "unknown"
    assert "an earlier attempt of deploy was interrupted" in outcome.content
    assert received(tmp_path) == [["x", False, 1]]
