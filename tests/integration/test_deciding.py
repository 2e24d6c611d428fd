"""Decisions on the command line with real servers and a worker: signatures, quorums, edits, delegation, revocation."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Catalog, Policy, tool
from holdfast.config.policy_file import load_policy
from holdfast.config.stack_file import Stack
from holdfast.testing import call, say, steps, together
from tests.integration.test_cli import REPOSITORY, Ran, Shell
from tests.support.rig import Rig, StartRig, check_thread, environ_of, eventually, status_of


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


class Desk:
    """People with keys, a policy that names them, and a terminal.

    Args:
        folder: The folder for keys and policy.
        stack: The servers.
    """

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = folder
        variables = {"HOLDFAST_HOME": str(folder / "home"), **environ_of(stack)}
        self._shell = Shell({**variables, "DATABASE_URL": stack.database_url or ""}, folder=folder)

    async def __call__(self, *words: str, **variables: str) -> Ran:
        """Run `starter.py` while the worker runs."""
        return await asyncio.to_thread(lambda: self._shell(*words, **variables))

    async def policy(self, terms: str, *, signatures: str = "required") -> Policy:
        """Return a policy by which `pay` asks alice and bob, each with their own key."""
        made = [await self("keygen", "--out", f"{name}.key") for name in ("alice", "bob")]
        people = "".join(
            f"  - name: {name}\n    roles: [finance]\n    {ran.out.strip()}\n"
            for name, ran in zip(("alice", "bob"), made, strict=True)
        )
        path = self.folder / "policy.yaml"
        path.write_text(f"signatures: {signatures}\napprovers:\n{people}rules:\n  - ask: pay\n    terms: {terms}\n")
        checked = await self("policy", "check", "policy.yaml", "--json")
        policy = load_policy(path)
        assert checked.json["hash"] == policy.hash
        return policy


@pytest.fixture
def desk(tmp_path: Path, stack: Stack) -> Desk:
    """Return a desk without people."""
    return Desk(tmp_path, stack)


def paying(policy: Policy) -> Catalog:
    """Return a clerk who pays, under that policy."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", tools=[pay])]).governed_by(policy)


async def begin(rig: Rig, *, requests: int = 1) -> Any:
    """Start a run that asks for approval."""
    run = await rig.start("pay")
    await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == requests)
    return run


async def test_two_approvers_sign(desk: Desk, rig: StartRig) -> None:
    """Unsigned and forged decisions are rejected; two signed ones let the call run; `verify` checks the signatures."""
    policy = await desk.policy("{by: [finance], quorum: 2}")
    async with rig(paying(policy), steps([call("pay", cents=5), say("done")])) as r:
        run = await begin(r)
        approve = ("approve", run.id, "1")
        unsigned = await desk(*approve, "--by", "alice", "--json")
        assert (unsigned.code, unsigned.json["outcome"]) == (5, "unsigned")
        forged = await desk(*approve, "--by", "alice", "--key", "bob.key", "--json")
        assert (forged.code, forged.json["outcome"]) == (5, "bad_signature")
        first = await desk(*approve, HOLDFAST_KEY="alice.key", HOLDFAST_BY="alice")
        assert first.code == 0
        assert "1 of 2 have approved" in first.out
        assert "approve by alice" in first.err
        assert '"cents": 5' in first.err
        waiting = await desk("pending", run.id)
        assert "Decided by finance; 1 of 2 have approved: alice (signed)" in waiting.out
        again = await desk(*approve, "--by", "alice", "--key", "alice.key", "--json")
        assert (again.code, again.json["outcome"]) == (5, "duplicate")
        second = await desk(*approve, "--by", "bob", "--key", "bob.key", "--json")
        assert (second.code, second.json["outcome"]) == (0, "accepted")
        assert (await run.result())["result"] == "done"
        late = await desk(*approve, "--by", "bob", "--key", "bob.key", "--json")
        assert (late.code, late.json["outcome"]) == (5, "duplicate")
        assert "request 1 was decided before: approve by bob" in late.err
        log = await desk("log", run.id)
        assert "request 1: approve by bob (signed) → accepted" in log.out
        verified = await desk("verify", run.id, "--json")
        assert (verified.code, verified.json["signatures"], verified.json["from"]) == (0, 2, ["history", "record"])
        assert [one["what"] for one in verified.json["not_checked"]] == ["keys"]
        known = await desk("verify", run.id, "--keys", "policy.yaml", "--json")
        assert (known.code, known.json["verdict"], known.json["not_checked"]) == (0, "proven", [])
        # Other keys under the same names: the signatures in the log do not match them.
        other = (await desk("keygen", "--out", "other.key")).out.strip()
        people = [f"  - {{name: {name}, {other}}}" for name in ("alice", "bob")]
        (desk.folder / "others.yaml").write_text("\n".join(["approvers:", *people]))
        unknown = await desk("verify", run.id, "--keys", "others.yaml", "--json")
        events = await check_thread(r.client, run)
        signed = next(event.position for event in events if event.type == "decision_received" and event.proof)
        assert (unknown.code, unknown.json["position"], unknown.json["where"]) == (1, signed, "record")
        assert "no key of alice among the given keys" in unknown.json["reason"]
        report = await desk("verify", run.id, "--keys", "others.yaml")
        assert (report.code, f"event {signed}, in the record: decision_received" in report.out) == (1, True)
        assert (await desk("verify", run.id, "--keys", "nowhere.yaml")).code == 2


@pytest.mark.slow
async def test_an_edit_an_answer_and_a_remembered_rule(desk: Desk, rig: StartRig) -> None:
    """Edited arguments run; a response replaces a call; remembered rules are listed and can be revoked."""
    policy = await desk.policy("{by: [finance]}", signatures="optional")
    asked = together(*(call("pay", cents=cents) for cents in (1, 2, 3)))
    script = steps([asked, call("pay", cents=3), call("pay", cents=3), say("done")])
    async with rig(paying(policy), script) as r:
        run = await begin(r, requests=3)
        as_alice = ("--by", "alice", "--json")
        edited = await desk("approve", run.id, "1", "--edit", '{"cents": "much"}', *as_alice)
        assert (edited.code, edited.json["outcome"]) == (5, "malformed")
        for words in (
            ("approve", run.id, "1", "--edit", '{"cents": 10}', "--key", "alice.key"),
            ("respond", run.id, "2", "paid last week"),
            ("approve", run.id, "3", "--remember"),
        ):
            ran = await desk(*words, *as_alice)
            assert (ran.code, ran.json["outcome"]) == (0, "accepted"), words
        assert (await run.result())["result"] == "done"
        events = await check_thread(r.client, run)
        results = [event.text for event in events if event.type == "tool_call_finished"]
        assert "paid 10" in results[0] + results[1] + results[2]
        assert any("alice answers in its place: paid last week" in result for result in results)
        assert sum("paid 3" in result for result in results) == 3
        assert sum(event.type == "approval_requested" for event in events) == 3


@pytest.mark.slow
async def test_authority_is_delegated_and_revoked(desk: Desk, rig: StartRig) -> None:
    """An approver signs a temporary delegation of authority; the delegate decides in their name."""
    policy = await desk.policy("{by: [alice]}")
    script = steps([together(call("pay", cents=1), call("pay", cents=2)), say("done")])
    async with rig(paying(policy), script) as r:
        run = await begin(r, requests=2)
        as_bob = ("--by", "bob", "--key", "bob.key", "--json")
        as_alice = ("--by", "alice", "--key", "alice.key", "--json")
        assert (await desk("approve", run.id, "1", *as_bob)).json["outcome"] == "not_entitled"
        lend = ("delegate-authority", run.id, "--to", "bob", "--for", "1d")
        assert (await desk(*lend, "--by", "alice", "--json")).json["outcome"] == "unsigned"
        assert (await desk(*lend, *as_alice)).json["outcome"] == "accepted"
        assert "by alice to bob" in (await desk("show", run.id)).out
        assert (await desk("approve", run.id, "1", *as_bob)).json["outcome"] == "accepted"
        back = await desk("revoke", run.id, "--delegated-to", "bob", *as_alice)
        assert (back.code, back.json["outcome"]) == (0, "accepted")
        refused = await desk("approve", run.id, "2", *as_bob)
        assert (refused.code, refused.json["outcome"]) == (5, "not_entitled")
        assert (await desk("deny", run.id, "2", *as_alice)).json["outcome"] == "accepted"
        await run.result()
        log = await desk("log", run.id)
        assert "request 1: approve by bob for alice (signed) → accepted" in log.out


async def test_a_signed_decision_needs_no_worker(desk: Desk, rig: StartRig) -> None:
    """A decision signed for a digest shown earlier is sent without a worker; the next worker counts it."""
    policy = await desk.policy("{by: [finance]}")
    catalog, script = paying(policy), steps([call("pay", cents=1), say("done")])
    async with rig(catalog, script) as r:
        run = await begin(r)
        (request,) = (await run.query("state"))["pending"]
        queue = r.task_queue
    options = ("--by", "alice", "--key", "alice.key", "--digest", request["digest"], "--json")
    sent = await desk("respond", run.id, "1", "no need", *options, HOLDFAST_ANSWER_SECONDS="1")
    assert (sent.code, sent.json["outcome"]) == (0, "sent")
    async with rig(catalog, script, task_queue=queue):
        await status_of(run, "completed")


@pytest.mark.parametrize(
    "words",
    [
        ("approve", "t", "1", "--edit", "{"),
        ("approve", "t", "1", "--edit", "[1]"),
        ("approve", "t", "1", "--edit", '{"a": NaN}'),
        ("approve", "t", "1", "--key", "none.key"),
        ("delegate-authority", "t", "--to", "bob", "--for", "soon"),
        ("revoke", "t"),
        ("revoke", "t", "--remembered", "1", "--delegated-to", "bob"),
        ("reconcile", "t", "1", "--undo", "--absent"),
        ("policy", "check", "none.yaml"),
        ("policy", "explain", "none.yaml", "--tool", "x", "--arguments", "{"),
    ],
)
async def test_invalid_decisions_are_usage_errors(desk: Desk, words: tuple[str, ...]) -> None:
    """Invalid decisions exit with 2 and a message, before any server is contacted."""
    ran = await desk(*words)
    assert ran.code == 2
    assert ran.err


@pytest.mark.extended
async def test_a_worker_does_not_start_with_an_invalid_policy(desk: Desk) -> None:
    """One message lists every problem of the policy, with exit code 2, before anything else is started."""
    (desk.folder / "policy.yaml").write_text("rules: [{ask: x, when: nope}, {allow: y, effect: z}]")
    worker = [sys.executable, str(REPOSITORY / "worker.py"), "--dev", "--policy", "policy.yaml"]
    ran = await asyncio.to_thread(subprocess.run, worker, cwd=desk.folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 2
    assert "policy.yaml:1:24: rules[0].when: there is no variable 'nope'" in ran.stderr


async def test_a_policy_is_checked_and_explained_without_a_server(desk: Desk) -> None:
    """`policy` shows every problem with its source location, or the rule that decides and who may approve."""
    (desk.folder / "bad.yaml").write_text("rules:\n  - ask: pay\n    wen: true\n  - {alow: x}\n")
    bad = await desk("policy", "check", "bad.yaml", "--json")
    assert bad.code == 2
    assert [(each["line"], each["field"]) for each in bad.json["problems"]] == [(3, "rules[0].wen"), (4, "rules[1]")]
    assert "bad.yaml:3:5: rules[0].wen: there is no such field; did you mean when?" in bad.err
    await desk.policy("{by: [finance], quorum: 2, expires_after: 7d}", signatures="optional")
    words = ("policy", "explain", "policy.yaml", "--tool", "pay", "--arguments", json.dumps({"cents": 1}))
    explained = await desk(*words, "--json")
    assert (explained.json["verdict"], explained.json["rule"], explained.json["who"]) == (
        "ask",
        "ask pay",
        ["alice", "bob"],
    )
    shown = await desk(*words)
    assert "Decided by 2 of alice, bob" in shown.out
    assert "denied after 7d" in shown.out
