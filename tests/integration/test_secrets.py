"""A secret that a tool uses, returns and raises never appears in history, record, prompts or logs."""

import asyncio
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import psycopg
import pytest
import structlog
from pydantic import AfterValidator
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Catalog, Found, Limits, Policy, ToolContext, allow, tool
from holdfast.composition.telemetry.logs import configure_logging
from holdfast.config.stack_file import Stack
from holdfast.core.tools.secrets import Secrets
from holdfast.errors import SettingsError
from holdfast.testing import call, fail, say, steps
from tests.integration.test_worker import refused, start
from tests.support.rig import StartRig, check_thread, status_of

FRAGMENT = b"hunter2"
"""A part of each value that no encoding changes: text that contains it leaks the secret."""

STRIPE_KEY = 'sk-hunter2"\\+/live'
OPENAI_API_KEY = "sk-proj-hunter2"
CERTIFICATE = "-----BEGIN-----\nhunter2\n-----END-----\n"
SHOWN = b"[secret STRIPE_KEY]"


@tool(effect="read", secrets=("STRIPE_KEY",))
async def leak(how: str, context: ToolContext) -> object:
    """Return the secret."""
    key = context.secret("STRIPE_KEY")
    match how:
        case "text":
            return f"the key is {key}"
        case "json":
            return {"headers": [{"Authorization": key}]}
        case "long":
            return "x" * 1_500 + key + "y" * 3_000
        case "other":
            return context.secret("OPENAI_API_KEY")
        case _:
            try:
                raise KeyError(key)
            except KeyError as error:
                raise ValueError(f"wrong key {key}") from error


_checked: list[str] = []


def find_payment(context: ToolContext) -> Found:
    """Fail as a client library does; find the payment the second time."""
    key = context.secret("STRIPE_KEY")
    if context.key not in _checked:
        _checked.append(context.key)
        raise ConnectionError(f"401 for {key}") from KeyError(key)
    return Found(f"paid with {key}")


@tool(effect="verifiable", check=find_payment, timeout=5, secrets=("STRIPE_KEY",))
async def pay() -> str:
    """Pay, without receiving a response."""
    await asyncio.Event().wait()
    return "paid"


CATALOG = Catalog(
    agents=[
        Agent(
            name="a",
            instructions="Work.",
            policy=Policy(rules=(allow(),)),
            limits=Limits(tool_result_chars=1_000),
            tools=[leak, pay],
        )
    ],
)
SECRETS = Secrets({"STRIPE_KEY": STRIPE_KEY}, more=[("OPENAI_API_KEY", OPENAI_API_KEY)])


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Capture everything that a worker logs at the most verbose level; restore the logging configuration afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    root.handlers[:] = []
    configure_logging("DEBUG", "json", stream=stream, secrets=SECRETS)
    yield stream
    root.handlers[:], level, config = before
    root.setLevel(level)
    structlog.configure(**config)


async def history_of(run: WorkflowHandle[object, object]) -> bytes:
    """Return what Temporal stores of a run, with encoded payloads."""
    return b"\n".join(event.SerializeToString() for event in (await run.fetch_history()).events)


def database_of(url: str, thread: str) -> bytes:
    """Return every row of every Holdfast table, after checking that the thread's rows are among them."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'").fetchall()
        rows = b""
        for (table,) in tables:
            with connection.cursor().copy(f'COPY holdfast."{table}" TO STDOUT (FORMAT binary)') as copy:
                rows += b"".join(bytes(part) for part in copy)
    assert thread.encode() in rows
    return rows


async def test_a_secret_never_leaves_its_tool(rig: StartRig, client: Client, stack: Stack, log: io.StringIO) -> None:
    """A secret's name replaces it in everything that is recorded, sent to the LLM or logged, and the run replays.

    The secret is returned as text or JSON, also beyond the clipped part, raised by a tool or a check, or sent by the
    provider.
    """
    script = steps(
        [
            *(call("leak", how=how) for how in ("text", "json", "long", "raise", "other")),
            call("pay"),
            fail(401, f"wrong key {OPENAI_API_KEY}"),
        ]
    )
    async with rig(CATALOG, script, secrets=SECRETS) as r:
        run = await r.start()
        blocked = await status_of(run, "blocked")
        assert "401: wrong key [secret OPENAI_API_KEY]" in str(blocked["blocked"])
        r.llm.script = steps([say("Done.")] * 9)
        await run.signal("retry", {"by": "ann"})
        await run.result()
        events = await check_thread(client, run)
        record = b"\n".join(await r.threads.read(run.id))
        prompts = b"\n".join(request.body for request in r.llm.requests)
        described = (await run.describe()).raw_description.SerializeToString()
    results = [event.content for event in events if event.type == "tool_call_finished"]
    assert [SHOWN.decode() in result for result in results] == [True, True, False, True, False, True]
    assert results[0] == "the key is [secret STRIPE_KEY]"
    assert results[3] == "ValueError: wrong key [secret STRIPE_KEY]"
    assert "the tool does not declare the secret 'OPENAI_API_KEY'" in results[4]
    assert results[5] == "paid with [secret STRIPE_KEY]"
    history, rows = await history_of(run), database_of(stack.database_url, run.id)
    logged = log.getvalue().encode()
    for place in (history, record, rows, prompts, logged):
        assert SHOWN in place
        assert FRAGMENT not in place
    assert b"401 for [secret STRIPE_KEY]" in history, "the check's error is there, and redacted"
    assert rows.count(SHOWN + b"y" * 3_000) == 1, "so is the artifact"
    assert FRAGMENT not in described
    assert b"Traceback" in logged


def _fail(how: str) -> str:
    """Fail as a client library does when a validator calls it."""
    raise {
        "value": ValueError(f"wrong key {STRIPE_KEY}"),
        "connection": ConnectionError(f"401 for {STRIPE_KEY}"),
        "long": ConnectionError("x" * 175 + STRIPE_KEY + "y" * 100),
        "lines": ConnectionError(f"wrong certificate: {CERTIFICATE}"),
        "endless": ConnectionError("x" * 999_990 + STRIPE_KEY),
    }[how]


@tool(effect="read")
def ask(how: Annotated[str, AfterValidator(_fail)]) -> str:
    """Ask."""
    return how


async def test_an_error_of_a_validator_is_redacted(rig: StartRig, client: Client) -> None:
    """A secret in a validator's error, even a long or multi-line one, reaches neither the LLM nor the log."""
    agent = Agent(
        name="a",
        instructions="Work.",
        policy=Policy(rules=(allow(),)),
        limits=Limits(max_rejected_replies=9),
        tools=[ask],
    )
    catalog = Catalog(agents=[agent])
    hows = ("value", "connection", "long", "lines", "endless")
    secrets = SECRETS | Secrets({"CERTIFICATE": CERTIFICATE})
    async with rig(catalog, steps([*(call("ask", how=how) for how in hows), say("Done.")]), secrets=secrets) as r:
        run = await r.start()
        await run.result()
        events = await check_thread(client, run)
        record = b"\n".join(await r.threads.read(run.id))
        prompts = b"\n".join(request.body for request in r.llm.requests)
    results = [str(event.content) for event in events if event.type == "tool_call_finished"]
    assert ["[secret " in result for result in results] == [True, True, True, True, False]
    for place in (await history_of(run), record, prompts):
        assert SHOWN in place
        assert FRAGMENT not in place


async def test_a_worker_that_lacks_a_secret_is_not_built(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, and each tool that needs it."""
    monkeypatch.delenv("STRIPE_KEY", raising=False)
    with pytest.raises(SettingsError, match="STRIPE_KEY is not set, and tool 'leak', tool 'pay' need it"):
        async with rig(CATALOG, steps([say("Done.")])):
            pass


def test_a_worker_that_lacks_a_secret_does_not_start(tmp_path: Path) -> None:
    """The worker reports one error before it starts anything; with the variable it would have started."""
    (tmp_path / "mine.py").write_text(
        "from holdfast import Agent, Catalog, ToolContext, tool\n\n"
        "@tool(secrets=('STRIPE_KEY', 'BANK_PIN'))\ndef pay(context: ToolContext) -> None:\n    'Pay.'\n\n"
        "catalog = Catalog(agents=[Agent(name='a', instructions='', tools=[pay])])\n"
    )
    done = start(tmp_path, "--dev", "--catalog", "mine:catalog", BANK_PIN="1234")
    refused(done, "STRIPE_KEY is not set, and tool 'pay' needs it.", "Set it where this worker runs")
    assert "BANK_PIN" not in done.stderr
    assert not (tmp_path / "home").exists(), "nothing was started for it"
