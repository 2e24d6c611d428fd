"""Forks carry no authority of the original, of a forged start, of a rewritten record or of a folder."""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.judge.audit import Audit, Fault
from holdfast.audit.judge.forks import first_thread
from holdfast.core.authority.policy import Approver, Policy, Terms, allow, ask, deny
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, RunForked, RunStarted, ToolCallStarted, VerdictGiven
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.mac.starts import refusal
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.error_types import START_REFUSED
from holdfast.core.run.contracts.loading import LoadedThread, ThreadRequest
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.contracts.subagents import StartSubagentsRequest
from holdfast.core.run.rules.forks import MAX_FORK_POLICIES
from holdfast.core.run.state.features import FORKS
from holdfast.workspace.folders import digested_name
from holdfast.workspace.git.git import GitFailed
from holdfast.workspace.git.worktree import make_forked_folder
from tests.support.plays import SUBAGENT_TOOLS
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.core.run.test_subagents import asks

FREE = agent_spec(policy=Policy(rules=(allow(),)))
HASTY = agent_spec(policy=Policy(rules=(ask("pay", terms=Terms(expires_after=60, on_expiry="approve")), allow())))


def trusted_thread() -> Thread:
    """Return a thread to which people have granted much: a remembered rule, a delegation, and an open request."""
    thread = loaded_thread(features=FORKS)
    thread.reply(calls("pay"))
    thread.update("delegate_authority", {"by": "alice", "to": "mallory", "seconds": 3_600})
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    thread.reply(calls("pay", "look", first=5))
    return thread


def fault(events: list[AgentEvent]) -> Fault | None:
    """Return the first fault in a log of the thread `u`, in a chain that an attacker has recomputed."""
    log = EventLog()
    for event in events:
        head = log.head
        if isinstance(event, RunForked) and event.point.head == "":
            event = event.model_copy(update={"point": event.point.model_copy(update={"head": head})})
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    audit = Audit(first_thread(log.events, "u"))
    audit.take(log.events)
    return audit.fault or (None if audit.thread == "u" else Fault(-1, "another thread's"))


def test_a_plain_start_forks_nothing() -> None:
    """Anyone who reaches Temporal can start a run, but only our own processes can start a fork."""
    forged = RunInput(task="go", fork=ForkPoint(thread="t", position=3, head=64 * "0"))
    assert "fork" in refusal(forged, first_run_id="r", started_at=NOW)


def test_a_fork_has_none_of_the_originals_authority() -> None:
    """Rules, delegations and requests are not inherited, and effects ask even if the policy allows them."""
    thread = trusted_thread()
    assert thread.running_calls == [2, 3]  # the remembered rule lets it run
    fork = thread.fork(task="go on")
    authority = fork.state.authority
    assert (authority.rules, authority.delegations, authority.requests) == ((), (), ())
    assert [call.phase for call in fork.state.calls.current] == ["finished", "finished"]
    fork.load(FORKS)
    fork.reply(calls("pay", first=9))
    assert fork.running_calls == []
    assert fork.decide("2", by="mallory") == "accepted"  # this policy names no approver; the next one does


@pytest.mark.parametrize("spec", [FREE, HASTY])
def test_effects_of_a_fork_wait_for_a_person(spec: Any) -> None:
    """Neither a rule that allows nor one that approves on expiry runs an effect until the constraint is removed."""
    thread = loaded_thread(spec, features=FORKS)
    fork = thread.fork(task="go on")
    fork.load(FORKS)
    fork.reply(calls("pay", "look"))
    assert fork.running_calls == [2]
    fork.finish(2)
    fork.advance(hours=1)
    assert not [event for event in fork.log if isinstance(event, ToolCallStarted) and event.number == 1]
    if not fork.calling_llm():
        fork.decide("1", "deny")
    assert fork.update("lift", {"constraint": 0, "by": "alice"})["outcome"] == "accepted"
    assert fork.update("lift", {"constraint": 0, "by": "alice"})["outcome"] == "unknown_request"
    fork.reply(calls("pay", first=7))
    assert fork.state.authority.requests == () or spec is HASTY
    fork.check_consistent()
    assert fault(fork.log) is None


def test_only_an_approver_removes_the_constraint_of_a_fork() -> None:
    """A name that the policy does not list changes nothing, and neither does a thread that is no fork."""
    policy = Policy(rules=(allow(),), approvers=(Approver(name="alice"),), terms=Terms(requester_may_decide=False))
    thread = loaded_thread(agent_spec(policy=policy), features=FORKS)
    assert thread.update("lift", {"constraint": 0, "by": "alice"})["outcome"] == "unknown_request"
    fork = thread.fork(task="go on", by="alice")
    fork.load(FORKS)
    for by in ("mallory", "alice"):  # alice forked it, and requesters may not decide
        assert fork.update("lift", {"constraint": 0, "by": by})["outcome"] == "not_entitled"


@pytest.mark.parametrize("wrong", [{"position": 2}, {"head": 64 * "a"}, {"thread": "u"}])
def test_a_fork_begins_with_the_events_that_it_names(wrong: dict[str, Any]) -> None:
    """A worker loads exactly the events that the sealed start names; a thread is no fork of itself."""
    events = trusted_thread().log
    point = ForkPoint(thread="t", position=len(events) - 1, head=events[-1].digest).model_copy(update=wrong)
    thread = Thread(name="u", task="go", fork=point, features=FORKS)
    (call,) = thread.waiting(ThreadRequest)
    thread.end(call, LoadedThread(snapshot=snapshot_of(events)))
    end = thread.run.end
    assert end is not None
    assert end.failure is not None
    assert end.failure.cause == START_REFUSED
    assert thread.run.log.length == len(events)


def test_a_fork_without_a_message_continues_only_unfinished_work() -> None:
    """After the agent's answer, a fork needs a message; in the middle of a step, it needs none."""
    thread = loaded_thread(agent_spec(limits=agent_spec().limits.model_copy(update={"idle_limit": 60})), features=FORKS)
    thread.reply(says("done"))
    fork = thread.fork()
    assert fork.closed
    assert not thread.fork(task="go on").closed
    middle = trusted_thread().fork()
    middle.load(FORKS)
    assert middle.calling_llm()


def _without_fork(events: list[AgentEvent]) -> list[AgentEvent]:
    return [event for event in events if not isinstance(event, RunForked)]


def _changed(**fields: Any) -> Callable[[list[AgentEvent]], list[AgentEvent]]:
    def change(events: list[AgentEvent]) -> list[AgentEvent]:
        return [event.model_copy(update=fields) if isinstance(event, RunForked) else event for event in events]

    return change


def _kept_open(events: list[AgentEvent]) -> list[AgentEvent]:
    place = next(n for n, event in enumerate(events) if isinstance(event, RunForked))
    start = next(n for n, event in enumerate(events) if n > place and isinstance(event, RunStarted))
    return [*events[: place + 1], *events[start:]]


@pytest.mark.parametrize(
    "forge",
    [_without_fork, _changed(origin="x"), _changed(thread="x"), _changed(first_run_id="x"), _kept_open],
    ids=["removed", "another origin", "another thread", "another run", "calls stay open"],
)
def test_a_rewritten_fork_fails_the_audit(forge: Callable[[list[AgentEvent]], list[AgentEvent]]) -> None:
    """Without its fork event, or with another one, the fork's events do not follow from the original's."""
    events = trusted_thread().fork(task="go on").log
    assert fault(events) is None
    assert fault(forge(events)) is not None


HOSTILE = ("../../etc", "a/b", "a_b", "a b", "..", ".git", "-x", "x" * 200, "é", "a\u202eb", "x.lock")


def verdicts(thread: Thread) -> list[tuple[str, str]]:
    """Return the verdicts that were given in the fork itself, with their rules."""
    own = next(event.position for event in thread.log if isinstance(event, RunForked) and event.thread == thread.name)
    return [(e.verdict, e.rule) for e in thread.log if isinstance(e, VerdictGiven) and e.position > own]


def strict_fork(thread: Thread, policy: Policy, **more: Any) -> Thread:
    """Fork a thread under a further policy, remove what asks first, and have its LLM call all tools."""
    fork = thread.fork(task="go on", policies=(policy,), **more)
    fork.load(FORKS)
    assert fork.update("lift", {"constraint": 0, "by": "alice"})["outcome"] == "accepted"
    fork.reply(calls("pay", "look", "wipe", first=50))
    return fork


@pytest.mark.parametrize("policy", [Policy(rules=(allow(),)), Policy(rules=(allow("*"), allow("wipe")))])
def test_a_looser_policy_of_a_fork_allows_nothing(policy: Policy) -> None:
    """The agent's own policy asks and denies as before, whatever policy is added to it."""
    thread = loaded_thread(features=FORKS)
    plain = thread.fork(task="go on")
    plain.load(FORKS)
    plain.update("lift", {"constraint": 0, "by": "alice"})
    plain.reply(calls("pay", "look", "wipe", first=50))
    assert verdicts(strict_fork(thread, policy)) == verdicts(plain)


def test_a_stricter_policy_of_a_fork_holds_for_everything_derived_from_it() -> None:
    """It holds in later runs, in forks without it, in sub-agents, and after the fork's constraint is removed."""
    free = agent_spec(policy=Policy(rules=(allow(),)), tools=(*agent_spec().tools, *SUBAGENT_TOOLS))
    free = free.model_copy(update={"subagents": ("helper",)})
    strict = Policy(rules=(deny("wipe"), ask("pay"), allow()))
    fork = strict_fork(loaded_thread(free, features=FORKS), strict)
    expected = [
        ("ask", "ask pay (given with the fork)"),
        ("allow", "allow *"),
        ("deny", "deny wipe (given with the fork)"),
    ]
    assert verdicts(fork) == expected
    again = fork.fork(name="v", task="once more")
    again.load(FORKS)
    again.update("lift", {"constraint": 0, "by": "alice"})
    again.reply(calls("pay", "look", "wipe", first=90))
    assert verdicts(again) == expected
    assert [policy.hash for policy in again.state.origin.policies] == [strict.hash]
    for number in again.running_calls:
        again.finish(number)
    again.cancel()
    again.archive()
    again.reopen("and on")
    again.load_thread()
    again.load(FORKS)
    again.reply(calls("wipe", first=120))
    assert verdicts(again)[-1] == expected[-1]
    again.reply(asks(("run_agent", {"agent": "helper", "task": "wipe"})))
    (order,) = again.waiting(StartSubagentsRequest)
    assert isinstance(order, Call)
    assert isinstance(order.request, StartSubagentsRequest)
    assert strict in order.request.policies


def test_the_llm_and_policy_of_a_fork_cannot_be_removed_from_its_log() -> None:
    """The log names the LLM and has the policy; without it, the first verdict based on it does not follow."""
    strict = Policy(rules=(deny("wipe"), allow()))
    fork = strict_fork(loaded_thread(agent_spec(policy=Policy(rules=(allow(),))), features=FORKS), strict, llm="other")
    event = next(event for event in fork.log if isinstance(event, RunForked))
    assert (event.llm, event.policies) == ("other", (strict,))
    assert fork.state.fork
    assert fork.state.fork.view()["policies"] == [strict.hash]
    assert fault(fork.log) is None
    bare = [e.model_copy(update={"policies": ()}) if isinstance(e, RunForked) else e for e in fork.log]
    wrong = fault(bare)
    assert wrong
    assert fork.log[wrong.position].type in ("llm_replied", "verdict_given")


def test_a_fork_keeps_the_original_agents_policy_if_its_start_says_so() -> None:
    """The gateway starts forks with another agent that way, so no caller escapes a rule by choosing an agent."""
    original = loaded_thread(agent_spec(policy=Policy(rules=(deny("wipe"), allow()))), features=FORKS)
    original.spec = agent_spec(policy=Policy(rules=(allow(),)))
    for keeps, verdict in ((False, "allow"), (True, "deny")):
        fork = original.fork(task="go on", agent="bold", keeps_policy=keeps)
        fork.load(FORKS)
        fork.update("lift", {"constraint": 0, "by": "alice"})
        fork.reply(calls("wipe", first=50))
        assert verdicts(fork)[0][0] == verdict


def test_a_fork_before_any_agent_is_loaded_does_not_begin() -> None:
    """A later run has its task before its agent: a fork at that event must not bypass the policy."""
    original = loaded_thread(agent_spec(policy=Policy(rules=(deny("wipe"), allow()))), features=FORKS)
    original.cancel()
    original.archive()
    original.reopen("and on")
    original.load_thread()
    assert (original.state.spec, original.log[-1].type) == (None, "user_message_received")
    assert rejection_of(original.fork(task="go on", agent="bold", keeps_policy=True)).startswith("no agent is loaded")
    assert not original.fork(task="go on", agent="bold").run.end, "whoever has the fleet key may"


def rejection_of(thread: Thread) -> str:
    """Return why a thread did not begin."""
    assert thread.run.end
    assert thread.run.end.failure
    assert thread.run.end.failure.cause == START_REFUSED
    return thread.run.end.failure.message


def test_a_repeated_policy_judges_once_and_policies_are_limited() -> None:
    """Adding the same policy again has no effect; more policies than can be judged in time are rejected."""
    thread = loaded_thread(features=FORKS)
    strict = Policy(rules=(deny("wipe"), allow()))
    for number in range(3):
        thread = thread.fork(name=f"same{number}", task="go on", policies=(strict, strict))
        thread.load(FORKS)
    assert thread.state.origin.policies == (strict,)
    others = [Policy(rules=(deny(f"tool{number}"), allow())) for number in range(MAX_FORK_POLICIES)]
    thread = thread.fork(name="many", task="go on", policies=tuple(others[1:]))
    thread.load(FORKS)
    assert rejection_of(thread.fork(name="more", task="go on", policies=(others[0],))).startswith("too many policies")
    assert not thread.fork(name="again", task="go on", policies=(others[1],)).run.end


def test_a_plain_start_sets_neither_llm_nor_policies_of_a_fork() -> None:
    """LLM and policies of an unsealed start are rejected with it."""
    point = ForkPoint(thread="t", position=3, head=64 * "0")
    forged = RunInput(task="go", fork=point, llm="mine", policies=(Policy(rules=(allow(),)),))
    assert refusal(forged, first_run_id="r", started_at=NOW)
    assert not {"llm", "policies", "keeps_policy", "fork"} & RunInput.PLAIN


def test_folders_of_forks_are_distinct() -> None:
    """No two ids share a folder, and none leads outside the workspaces' folder or is an invalid name for git."""
    names = [digested_name(thread) for thread in HOSTILE]
    assert len(set(names)) == len(HOSTILE)
    for name in names:
        assert name.isascii()
        assert not set(name) & set("/. ")
        assert not name.startswith("-")


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    who = {"GIT_AUTHOR_NAME": "d", "GIT_AUTHOR_EMAIL": "d@d", "GIT_COMMITTER_NAME": "d", "GIT_COMMITTER_EMAIL": "d@d"}
    environ = {"PATH": os.environ["PATH"], **who, "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environ)


def test_a_hostile_repository_runs_nothing_and_redirects_nothing(tmp_path: Path) -> None:
    """Hooks and filters do not run, a link in place of the workspace is rejected, and files are restored exactly."""
    folder, outside, ran = tmp_path / "r", tmp_path / "outside", tmp_path / "ran"
    folder.mkdir()
    outside.mkdir()
    git(folder, "init", "--quiet")
    (folder / "inner").symlink_to(outside)
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "a.txt").write_text("a")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "config", "filter.evil.smudge", f"touch {ran}; cat")
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    now = datetime.now(UTC)
    made = make_forked_folder(folder, tmp_path / digested_name("one"), at=now)
    assert (made / "a.txt").read_text() == "a"
    assert not ran.exists()
    assert make_forked_folder(folder, tmp_path / digested_name("one"), at=now) == made  # a repeated attempt

    (folder / "inner").unlink()
    (folder / "inner").mkdir()
    with pytest.raises(GitFailed, match="link to another place"):
        make_forked_folder(folder / "inner", tmp_path / digested_name("two"), at=now)
    assert list(outside.iterdir()) == []
    empty = make_forked_folder(folder, tmp_path / digested_name("three"), at=datetime(2019, 1, 1, tzinfo=UTC))
    assert list(empty.iterdir()) == []


def test_a_fork_at_any_event_passes_the_audit() -> None:
    """This includes forks between events that were recorded together; every call in the transcript has its result."""
    thread = trusted_thread()
    refused = []
    for at in range(1, len(thread.log)):
        fork = thread.fork(at, task="go on")
        if fork.closed:
            refused.append(at)
            continue
        assert fault(fork.log) is None, thread.log[at].type
        fork.check_consistent()
    types = [event.type for event in thread.log]
    assert [types[at + 1] for at in refused] == [*2 * ["tool_call_requested"], "verdict_given", "tool_call_requested"]
