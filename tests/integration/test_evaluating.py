"""Recorded runs are rerun with their recorded results under another LLM, prompt or policy; nothing is executed."""

import json
import os
import re
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import Agent, Cannot, Catalog, Policy, ToolContext, allow, ask, deny, starter, tool
from holdfast.composition.telemetry import logs
from holdfast.core.authority.policy import Approver, Terms
from holdfast.errors import FileUnreadable, NotPlayable, RunCancelled
from holdfast.evaluation.endpoints import scripted
from holdfast.evaluation.evaluate import evaluate_dataset
from holdfast.evaluation.files import read_dataset, read_run
from holdfast.evaluation.replies import RecordedReplies
from holdfast.evaluation.runner import open_eval_runner
from holdfast.portable.export import export_thread
from holdfast.testing import Conversation, Reply, ScriptedRun, agent, call, cut_off, replay, say, steps, together

pytestmark = pytest.mark.usefixtures("session_server")

PATIENCE = 300
"""Seconds that a run or a rerun may take on a busy machine."""
played = partial(replay, patience=PATIENCE)
RAN: list[str] = []
"""The tools that were executed in this process."""


@tool(effect="read")
def invoice(number: int) -> dict[str, int]:
    """Look up an invoice."""
    RAN.append("invoice")
    return {"number": number, "cents": 4_000 + number}


@tool(effect="unsafe", secrets=("BANK_KEY",))
def refund(number: int, cents: int, context: ToolContext) -> str:
    """Refund an invoice."""
    RAN.append("refund")
    return f"refunded {cents}"


@tool(effect="unsafe")
def ship(number: int) -> Cannot:
    """Ship an order."""
    RAN.append("ship")
    return Cannot("the warehouse is closed", scope="everywhere")


POLICY = Policy(rules=(ask("refund"), allow()))
TOOLS = (invoice, refund, ship)
SUPPORT = Agent(name="support", instructions="You refund invoices.", policy=POLICY, tools=TOOLS)
COUNTER = Agent(
    name="counter", instructions="You count.", result=list[int], policy=Policy(rules=(deny("*"),)), tools=TOOLS
)
LEAD = Agent(
    name="lead",
    instructions="You have others work.",
    subagents=("support",),
    policy=POLICY,
    dormancy=True,
    tools=TOOLS,
)


def catalog(policy: Policy = POLICY, **changes: Any) -> Catalog:
    """Return the catalog, with another policy or instructions."""
    support = SUPPORT.model_copy(update={"policy": policy, **changes})
    return Catalog(agents=[support, LEAD, COUNTER])


CATALOG = catalog()
SECRETS = {"BANK_KEY": "k-123456"}
Runs = Callable[[ScriptedRun], Coroutine[Any, Any, Any]]


async def recorded(run: ScriptedRun, path: Path, script: Any, drive: Runs) -> Path:
    """Run an agent, and export its thread."""
    run.llm.script = script if callable(script) else steps(script)
    await drive(run)
    await export_thread(run._threads, run.thread.id, path)
    RAN.clear()
    return path


REFUND: list[Reply] = [
    together(call("invoice", number=7), call("invoice", number=8), text="I look."),
    call("refund", number=7, cents=4_007),
    say("It is refunded."),
]


async def approved(run: ScriptedRun) -> None:
    """Refund with a person's approval."""
    await run.task("Refund invoice 7.", by="bob")
    await run.approve(by="alice")


@pytest.fixture
async def refunded(tmp_path: Path) -> Path:
    """Return the path of the recorded refund."""
    async with agent(CATALOG, [], secrets=SECRETS, patience=PATIENCE) as run:
        return await recorded(run, tmp_path / "refund.holdfast", REFUND, approved)


THREE: list[Reply] = [
    together(*(call("refund", number=number, cents=number) for number in (1, 2, 3))),
    say("I have tried."),
]


async def _decided(run: ScriptedRun) -> None:
    """Send a message while people decide in three ways."""
    await run.task("Refund 1, 2 and 3.")
    await run.say("Be quick.", by="bob")
    first, second, third = await run.pending()
    await run.approve(first, by="alice", arguments={"number": 1, "cents": 5}, reason="more")
    await run.deny(second, by="alice", reason="no")
    await run.respond("The bank did it.", third, by="alice")


async def _conversation(run: ScriptedRun) -> None:
    await run.task("Hello.")
    await run.say("And again.", by="bob")


async def _waiting(run: ScriptedRun) -> None:
    await run.task("Hello.", idle_limit=3_600)
    await run.say("And again.", by="bob")


async def _asking(run: ScriptedRun) -> None:
    await run.task("Refund invoice 7.")


async def _cancelled(run: ScriptedRun) -> None:
    await run.task("Refund invoice 7.")
    await run.thread.cancel("not today")
    with pytest.raises(RunCancelled):
        await run.result(until="end")


async def _counted(run: ScriptedRun) -> None:
    assert (await run.task("Count.", agent="counter")).structured


async def _lead(run: ScriptedRun) -> None:
    await run.task("Have it looked up.", agent="lead", until="end")  # the message arrives while it is awake


def _leads(conversation: Conversation) -> Reply:
    if "run_agent" not in conversation.tools:
        return say("4007 cents.")
    replies = [call("run_agent", agent="support", task="Look up 7."), call("sleep_until", until="0.01s"), say("Done.")]
    return replies[conversation.replies]


MISTAKES = [call("nothing"), call("refund", number="x"), cut_off("I…")]
CASES: dict[str, tuple[Any, Runs]] = {
    "decided": (THREE, _decided),
    "structured": ([say("Three."), call("final_result", result=["x"]), call("final_result", result=[3])], _counted),
    "conversation": ([say("Hello."), say("Again.")], _conversation),
    "waiting": ([say("Hello."), say("Again.")], _waiting),
    "asking": (REFUND, _asking),
    "cancelled": (REFUND, _cancelled),
    "refused": ([*MISTAKES, call("ship", number=1), call("ship", number=2), say("Sorry.")], _asking),
    "lead": (_leads, _lead),
}


async def test_recorded_replies_reproduce_the_recorded_run(tmp_path: Path) -> None:
    """With its recorded replies, a recorded run makes the same calls and has the same result, and no tool runs."""
    async with agent(CATALOG, [], secrets=SECRETS, patience=PATIENCE) as run:
        for name, case in CASES.items():
            await recorded(run, tmp_path / f"{name}.holdfast", *case)
    async with scripted(RecordedReplies()) as llm, open_eval_runner(CATALOG, llm) as player:
        evaluations = await evaluate_dataset(player, *read_dataset(tmp_path))
    assert {f"{name}.holdfast" for name in CASES} == {each.run for each in evaluations}
    for evaluation in evaluations:
        assert (evaluation.unplayable, evaluation.divergence, evaluation.missing) == ("", "", ()), evaluation.run
        assert evaluation.same_calls
        assert evaluation.same_effects
        assert evaluation.same_result, (
            evaluation.run,
            evaluation.ended,
            evaluation.result,
            evaluation.recorded_ended,
            evaluation.recorded_result,
        )
        assert evaluation.played.tokens == evaluation.recorded.tokens
    assert RAN == []


@pytest.mark.extended
async def test_another_policy_reports_what_it_would_deny(refunded: Path) -> None:
    """A stricter policy denies calls or asks where none was asked; the rerun names the call and the rule."""
    evaluation = await played(refunded, catalog(Policy(rules=(deny("refund"), allow()))))
    assert (evaluation.same_calls, evaluation.diverges_at, evaluation.nothing_refused) == (False, 2, False)
    assert [(each.step, each.tool, each.verdict, each.answered) for each in evaluation.refusals] == [
        (2, "refund", "deny", False)
    ]
    assert evaluation.refusals[0].rule == "deny refund"
    assert "[denied]" in evaluation.divergence
    evaluation = await played(refunded, catalog(Policy(rules=(ask("invoice"), allow()))))
    assert (evaluation.ended, evaluation.diverges_at) == ("asked", 1)
    assert [each.answered for each in evaluation.refusals] == [False, False]
    assert RAN == []


@pytest.mark.extended
async def test_people_who_sign_need_not_sign_again(refunded: Path) -> None:
    """Only the policy's verdicts are evaluated; who may decide, quorums and signatures are not asked of a recording."""
    people = tuple(Approver(name=name) for name in ("carol", "dave"))
    terms = Terms(quorum=2, requester_may_decide=False)
    strict = Policy(rules=(ask("refund", terms=terms), allow()), approvers=people)
    evaluation = await played(refunded, catalog(strict))
    assert (evaluation.same_calls, evaluation.same_result, evaluation.nothing_refused) == (True, True, True)


@pytest.mark.extended
async def test_another_llm_gets_recorded_results_stubs_and_misses(refunded: Path) -> None:
    """A recorded call gets its result once; any other call gets a stub, or a result that says it was not made."""

    def other(conversation: Conversation) -> Reply:
        replies = [
            call("invoice", number=8),
            together(call("invoice", number=8), call("invoice", number=9)),
            say(" | ".join(conversation.results)),
        ]
        return replies[conversation.replies]

    evaluation = await played(refunded, CATALOG, other)
    assert not evaluation.same_calls
    assert (evaluation.same_effects, evaluation.diverges_at, evaluation.ended) == (False, 1, "completed")
    assert evaluation.missing == ('invoice({"number":8})', 'invoice({"number":9})')
    assert evaluation.result.count("no result of this call") == 2
    evaluation = await played(refunded, CATALOG, other, stubs={"invoice": {"cents": 1}})
    assert (evaluation.missing, evaluation.result) == ((), '{"cents":1} | {"cents":1}')
    assert RAN == []


@pytest.mark.extended
async def test_messages_are_sent_in_the_step_in_which_they_arrived(tmp_path: Path) -> None:
    """A message that arrived while the agent was working is shown to the LLM after the same step."""
    async with agent(CATALOG, [], secrets=SECRETS, patience=PATIENCE) as run:
        await recorded(run, tmp_path / "decided.holdfast", *CASES["decided"])
    sent: list[list[str]] = []

    def other(conversation: Conversation) -> Reply:
        sent.append([str(message["content"]) for message in conversation.messages if message["role"] == "user"])
        return [*THREE[:1], call("invoice", number=1), say("Tried.")][conversation.replies]

    evaluation = await played(tmp_path / "decided.holdfast", CATALOG, other)
    assert [[text.count("Be quick.") for text in texts] for texts in sent] == [[0], [0, 1], [0, 1]]
    assert (evaluation.ended, evaluation.diverges_at, evaluation.same_effects) == ("completed", 2, True)


@pytest.mark.extended
async def test_a_rerun_reads_no_secrets_and_opens_nothing(refunded: Path, tmp_path: Path) -> None:
    """A rerun neither needs nor uses secrets, resources, middleware or the catalog's own stores."""
    evaluation = await played(refunded, CATALOG)  # BANK_KEY is not set
    assert evaluation.same_calls
    with pytest.raises(NotPlayable, match="no agent 'support'"):
        await played(refunded, Catalog(agents=[LEAD.model_copy(update={"subagents": ()})]))
    with pytest.raises(FileUnreadable):
        await played(tmp_path / "none.holdfast", CATALOG)


@pytest.mark.extended
async def test_forks_and_sub_agents_are_refused(tmp_path: Path) -> None:
    """A sub-agent's file is rejected with the name of the thread to rerun instead."""
    async with agent(CATALOG, _leads, secrets=SECRETS, patience=PATIENCE) as run:
        await _lead(run)
        child = next(iter((await run.tree()).children))
        await export_thread(run._threads, child.thread, tmp_path / "child.holdfast")
        with pytest.raises(NotPlayable, match=re.escape(run.thread.id)):
            await read_run(tmp_path / "child.holdfast")


AGENTS = """
from holdfast import Agent, Catalog, Policy, allow, ask, tool

@tool(effect="read")
def invoice(number: int) -> dict[str, int]:
    "Look up an invoice."
    raise SystemExit("a tool has run")

@tool(effect="unsafe")
def refund(number: int, cents: int) -> str:
    "Refund an invoice."
    raise SystemExit("a tool has run")

policy = Policy(rules=(ask("refund"), allow()))
catalog = Catalog(agents=[Agent(name="support", instructions="", policy=policy, tools=[invoice, refund])])
"""


def test_the_command_line_evaluates_a_dataset(refunded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`eval` takes a catalog by option, prints which expectations hold, and exits with 1 if one does not."""
    folder = refunded.parent
    (folder / "agents_of_a_set.py").write_text(AGENTS)
    (folder / "holdfast.toml").write_text('catalog = "agents_of_a_set:catalog"\n')
    (folder / "strict.yaml").write_text("rules:\n  - deny: refund\n  - allow: '*'\n")
    runs = '[[run]]\nfile = "refund.holdfast"\nexpect = ["same_calls", "same_result"]\n'
    (folder / "eval.toml").write_text(runs)
    for name in os.environ:
        if name.startswith(("HOLDFAST_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(logs, "configure_logging", lambda *given: None)  # it belongs to this process
    monkeypatch.delitem(sys.modules, "agents_of_a_set", raising=False)

    def ran(*words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(starter.app, ["eval", ".", "--catalog", "agents_of_a_set:catalog", *words])
        return result.exit_code, result.stdout, result.stderr

    code, shown, notes = ran("--llm", "recorded")
    assert code == 0, notes
    assert shown.splitlines()[1].split()[:3] == ["refund.holdfast", "same", "same"], shown
    assert shown.splitlines()[-1].startswith("1 run: 1 as expected, 0 not; ")
    code, shown, notes = ran("--llm", "recorded", "--policy", "strict.yaml", "--json")
    assert code == 1, notes
    view = json.loads(shown)
    assert (view["ok"], view["failed"], view["runs"][0]["diverges_at"]) == (False, 1, 2)
    assert view["runs"][0]["refusals"][0]["rule"] == "deny refund"
    code, shown, notes = ran()
    assert (code, shown) == (2, ""), notes
    assert "--llm recorded" in notes
