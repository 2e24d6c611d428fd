"""The examples that are one process each: their agents and their workers, on the session's servers."""

import asyncio
import io
from collections import Counter
from collections.abc import Callable
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

import holdfast
from holdfast import SyncClient
from holdfast.config.stack_file import Stack
from holdfast.examples.bank import agents as bank
from holdfast.examples.programs import (
    chat,
    nightly_report,
    plan_and_execute,
    refunds_and_chat,
    research,
    tree_that_asks,
)
from holdfast.testing import Conversation, Reply
from tests.support.rig import environ_of


@pytest.fixture(autouse=True)
def _servers(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the session's servers, with a queue that no other test has."""
    for name, value in {**environ_of(stack), "DATABASE_URL": stack.database_url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_TASK_QUEUE", f"program-{uuid4().hex[:8]}")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.extended
async def test_research_plans_searches_in_parallel_and_reports() -> None:
    """The report has what each search found; a second run of the script asks the LLM nothing, and prints the same."""
    asked: Counter[str] = Counter()

    def script(conversation: Conversation) -> Reply:
        asked[conversation.last_user_message] += 1
        return research.script(conversation)

    reports = []
    for _ in range(2):
        async with holdfast.running(research.catalog, script=script):
            reports.append(await research.research("How do bees find their way?"))
    assert reports[0] == reports[1]
    assert reports[0].title == "How do bees find their way?"
    assert all(any(note in text for text in reports[0].paragraphs) for note in research.NOTES.values())
    assert {asked[topic] for topic in research.NOTES} == {2}  # the search, and the answer


@pytest.mark.extended
def test_a_chat_goes_on_across_restarts_and_waits_for_the_staff() -> None:
    """A guest chats over HTTP; after a restart of the application, the chat continues; a large party waits for a
    decision from outside; and a chat's id opens no other thread.
    """
    with TestClient(chat.app) as http:
        begun = http.post("/chats", json={"text": "Is there a table for 2 tonight?"}).json()
        assert "18:00" in begun["text"]
    with TestClient(chat.app) as http:
        url = f"/chats/{begun['chat']}"
        waiting = http.post(url, json={"text": "Then reserve for 8 people"}).json()
        assert (waiting["text"], waiting["waits_for"]) == ("", ["reserve"])
        with SyncClient.connect(by="staff") as staff:
            thread = staff.thread(chat.thread_id(begun["chat"]))
            (request,) = thread.pending()
            thread.decide(request, "approve")
            thread.result(until="attention")
        assert "a table for 8 at 20:30 is reserved" in http.get(url).json()["text"]

        with SyncClient.connect() as other:
            secret = other.start("Keep this to yourself", thread="x" * 32).id
        assert http.get(f"/chats/{secret}").status_code == 404
        for chat_id in ("..%2f..%2fx", "x", f"{'x' * 31}%00"):
            assert http.get(f"/chats/{chat_id}").status_code in (404, 422)
            assert http.post(f"/chats/{chat_id}", json={"text": "hello"}).status_code in (404, 422)
        assert http.post("/chats", json={"text": "x" * 2_001}).status_code == 422


@pytest.mark.extended
async def test_an_application_in_the_loop_of_a_test() -> None:
    """The lifespan runs in any event loop that an application runs in, twice in one process."""
    for _ in range(2):
        async with chat.lifespan(chat.app):
            client: holdfast.Client = chat.app.state.agents
            begun = await client.start("Is there a table for 2?", thread=f"chat-{uuid4().hex}")
            assert "18:00" in (await begun.result(until="attention")).text
            await begun.cancel()
            await asyncio.sleep(0)


Printed = Callable[[], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Return what has been printed."""
    return lambda: capsys.readouterr().out


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Type lines at the terminal."""
    return lambda lines: monkeypatch.setattr("sys.stdin", io.StringIO(lines))


@pytest.mark.extended
async def test_a_report_is_one_command(printed: Printed) -> None:
    """The script writes its report, or fails with the cause and the exit code of a failure."""
    assert await nightly_report.main("2018-01-24") == 0
    assert "is written" in printed()
    assert await nightly_report.main("2018-01-25") == 1
    assert "ApprovalRequired" in printed()


@pytest.mark.extended
async def test_a_chat_with_refunds_is_one_command(printed: Printed, typed: Callable[[str], None]) -> None:
    """Lines at the terminal are answered; the second command, after the first has ended, approves the refund."""
    chat_id = f"customer-{uuid4().hex[:8]}"
    typed("Please refund order 7\nWhen do you open?\n\n")
    await refunds_and_chat.main(chat_id, approve=False)
    first, second = printed().splitlines()
    assert first.startswith("I have asked for your refund")
    assert second == "We open at nine."
    await refunds_and_chat.main(chat_id, approve=True)
    assert "order 7 is refunded: 500 cents" in printed()


@pytest.mark.extended
async def test_plans_and_trees_are_one_command(printed: Printed, typed: Callable[[str], None]) -> None:
    """One program executes its plan; another shows the request of a sub-agent, and the tree after its end."""
    await plan_and_execute.main(f"trip-{uuid4().hex[:8]}", "Plan a trip")
    assert "All is settled. 3 steps were done." in printed()
    typed("y\n")
    name = f"issue-{uuid4().hex[:8]}"
    await tree_that_asks.main(name, "Publish it")
    shown = printed()
    assert f"{name} > {name}.1 > {name}.1.1\n  may it call publish" in shown
    assert f"{name}.1.1: printer completed" in shown


@pytest.mark.extended
async def test_bank_support_is_one_command(printed: Printed) -> None:
    """The program says who asks; the PIN in the question verifies the customer, and the card is blocked."""
    await bank.main("4711", "Block my card, please: my PIN is 0815.")
    assert printed() == "The card is blocked.\n"
    await bank.main("4711", "Block my card, please: my PIN is 0816.")
    assert "The card is blocked." not in printed()
