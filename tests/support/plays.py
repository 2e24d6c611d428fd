"""Generate whole threads at random, for `tests/unit/core/run/test_run_properties.py`. A seed always gives the same
play.
"""

import json
import os
import pickle
import random
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from hypothesis import strategies as st

from holdfast.activities.builtin_tools.dormancy import dormancy_tools
from holdfast.activities.builtin_tools.offer import subagent_tools
from holdfast.core.agents.agent import Limits, Memory
from holdfast.core.authority.interventions import RefinementKind
from holdfast.core.authority.policy import Approver, Escalation, Policy, Terms, allow, ask, deny
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.blocks import ReasoningBlock, ToolCall, blocks_of
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import DecisionReceived
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.run.contracts.commands import Call, Sleep
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED, RECORD_CONFLICT
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, EffectsRequest, ThreadRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.subagents import (
    Announced,
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReport,
    SubagentReports,
)
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.rules.refusals import RECORDED
from holdfast.core.run.state.features import UNATTENDED
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.tools.effects import Effect, PastEffect, effect_key
from holdfast.core.tools.spec import ToolSpec
from tests.support.examples import examples
from tests.support.runs import Thread, agent_spec, tool_spec

ELSEWHERE = frozenset(
    {
        *("run_forked", "move_requested", "run_imported", "events_lost"),
        *("key_revoked", "run_reclassified", "policy_change_requested", "policy_changed", "policy_change_failed"),
        *("node_accepted", "node_awaited", "tool_call_rerouted", "tool_call_postponed"),
        *("answer_requested", "context_updated"),
    }
)
"""The events that no play has, each because other tests have it: `tests/security/test_forks.py`,
`tests/integration/test_moves.py`, `tests/integration/test_restore_drill.py` · `test_steering.py`,
`test_reclassifying.py`, `test_adopting_policies.py` · `test_places.py`, `test_later.py` · `test_foreign_waits.py`,
`tests/security/test_typed_context.py`. Events of new interventions join them."""

PLAYS = examples(30, 60)
"""The number of plays: few enough that all tests share them and each is played once."""
SEEDS = st.integers(0, PLAYS - 1)

SHARED = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", ""))
"""The folder that the processes of a test run share (`tests/conftest.py`)."""

DECISIONS: tuple[DecisionKind, ...] = get_args(DecisionKind)
PEOPLE = ("alice", "bob", "carol", "dave")
HOUR = 3_600
SUBAGENT_TOOLS = tuple(each.spec for each in subagent_tools())
SLEEP_TOOLS = tuple(each.spec for each in dormancy_tools())
LIMITS = Limits(
    max_steps=25,
    max_rejected_replies=3,
    compaction_tokens=1_000,
    idle_limit=5,
    stale_after=HOUR / 2,
    max_subagents=6,
    subagents_at_once=2,
    repeats_slowed=1,
    repeats_warned=2,
    repeats_asked=2,
)
TERMS = (
    Terms(),
    Terms(by=("boss", "bob"), quorum=2, expires_after=HOUR, remind_every=HOUR / 4),
    Terms(expires_after=HOUR, on_expiry="approve", remind_every=HOUR / 3),
    Terms(by=("boss",), veto=("dave",), requester_may_decide=False, escalate=(Escalation(after=60, by=("carol",)),)),
)
POLICIES = tuple(
    Policy(
        rules=(
            deny("wipe", reason="never"),
            deny("pay", when="args.at == 2 && args.n == 4"),
            ask("pay", when="args.at == 3", reason="much money", terms=Terms(remind_every=HOUR / 2)),
            allow("look"),
            allow("keep"),
            allow("sleep_until"),
            ask("wait_for_event", when="args.name == 'b'"),
            allow("wait_for_event"),
            allow("update_progress"),
            ask("run_agent", when="args.task == 'risky'"),
            allow("run_agent"),
            allow("agent_result"),
            ask("pay", reason="money", terms=terms),
        ),
        approvers=approvers,
        terms=Terms(remind_every=HOUR),
    )
    for terms in TERMS
    for approvers in (
        (Approver(name="alice", roles=("boss",)), *(Approver(name=name) for name in PEOPLE[1:])),
        *([()] if not terms.by else []),
    )
)
GARBAGE: tuple[Any, ...] = (
    None,
    7,
    [],
    {},
    "",
    "what?",
    '{"request": 99999}',
    {"request": True},
    {"message": ""},
    [{}],
)
RECALLED: tuple[tuple[RecalledTier, ...], ...] = (
    (),
    (RecalledTier(tier="standing", text="## Standing memory\n\n- m-1: be brief"),),
    (RecalledTier(tier="standing", text="- m-2"), RecalledTier(tier="files", text="TASKS.md", left_out=7)),
)
TEXTS = ("fine", "naïve 😀", "\n\r\u2028", 'quotes " and \\', "x" * 300)


class RandomRun:
    """A thread to which random events happen.

    Args:
        seed: Names the play.
        steps: The number of events before the thread is brought to its end.
        unattended: Whether its agent fails instead of waiting for a person.
        node: The key with which the workers sign results; None to sign none.
    """

    def __init__(
        self, seed: int, steps: int = 150, *, unattended: bool = False, node: SigningKey | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.losses = random.Random(seed)
        self.rates = {
            "crowded": self.chance.choice([0, 0.05, 0.3]),
            "overflow": self.chance.choice([0, 0.1, 0.5]),
            "refusal": self.chance.choice([0, 0.3]),
            "long": self.chance.choice([0, 0.3]),
            "conflict": self.chance.choice([0, 0, 0, 0.05]),
            "end": self.chance.choice([0.02, 0.15]),
            "cannot": self.chance.choice([0, 0.4]),
        }
        self.sent_messages: dict[str, str] = {}
        """The messages that the run accepted, with their outcomes."""
        self.accepted: list[str] = []
        """The decided requests, in the order of the decisions."""
        self.terminated = False
        self.previewing = seed % 12 == 7 and not node
        """Whether the agent's payments have previews."""
        self.features = UNATTENDED if unattended or node or self.previewing else seed % 2
        """The feature level of the workers."""
        self.sleeper = random.Random(seed) if seed % 4 == 1 else None
        """Makes the choices of an agent that can put itself to sleep; None for another agent."""
        self.parent = random.Random(seed) if seed % 8 in (5, 7) else None
        """Decides about sub-agents, in the plays whose agent runs some."""
        self.repeating = seed % 8 == 3
        """Whether every call has the same result."""
        self.spender = random.Random(seed) if seed % 10 == 5 else None
        """Makes the choices about the budget of an agent that has one; None for another agent."""
        self.flooded = seed % 6 == 0
        """Whether meaningless signals arrive by the hundred."""
        tools: tuple[ToolSpec, ...] = (
            tool_spec("look"),
            tool_spec("pay", Effect.UNSAFE, undoable=True, previews=self.previewing),
        )
        tools += (tool_spec("wipe", Effect.UNSAFE),)
        if self.chance.random() < 0.5:
            tools += (tool_spec("keep", Effect.IDEMPOTENT, trusted_only=True, wants_origin=True),)
        tools += SLEEP_TOOLS if self.sleeper else ()
        tools += SUBAGENT_TOOLS if self.parent else ()
        memory = Memory(progress=self.chance.random() < 0.5, learn=self.chance.random() < 0.6)
        if self.repeating:
            memory = Memory()
        if memory.progress or memory.learn:
            tools += (tool_spec("update_progress", Effect.IDEMPOTENT),)
            tools += (tool_spec("note_learning", Effect.IDEMPOTENT, wants_origin=True),)
        verify = self.chance.choice([(), ("look",)])
        policy = self.chance.choice(POLICIES)
        spent: dict[str, Any] = {}
        if self.spender:
            most = {"steps": self.spender.choice([5, 50]), "tokens": self.spender.choice([500, 50_000, 50_000])}
            budget = Budget(**most, seconds=3 * HOUR)
            spent = {"budget": budget, "llm_options": {"max_tokens": 100}}
        spec = agent_spec(limits=LIMITS, policy=policy, verify=verify, tools=tools, memory=memory, **spent)
        spec = spec.model_copy(update={"subagents": ("helper",)}) if self.parent else spec
        spec = spec.model_copy(update={"when_blocked": "fail"}) if unattended else spec
        self.thread = Thread(spec, idle_limit=self.chance.choice([None, 0, 5]), by=self.chance.choice(["", "alice"]))
        self.thread.node = node
        self.thread.recalled = self.chance.choice(RECALLED)
        self.thread.loads_effects = False
        self.thread.notify = self.chance.random() < 0.5
        for _ in range(steps):
            self._happen()
        self._wind_up()

    def _happen(self) -> None:
        """Apply one random event."""
        thread, chance = self.thread, self.chance
        if thread.closed:
            if not thread.intact:
                return
            thread.reopen(f"task {chance.randrange(1000)}")
        thread.continue_suggested = chance.random() < self.rates["crowded"]
        thread.at += timedelta(seconds=chance.choice([0, 0, 0, 1, HOUR / 3]))
        if self.sleeper and self.sleeper.random() < 0.1:
            self._wake(self.sleeper)
        if self.parent and (subagents := thread.state.subagents.children) and self.parent.random() < 0.2:
            thread.signal("subagent_ended", {"thread": self.parent.choice(subagents).thread})
        if self.spender and self.spender.random() < 0.05:
            self._extend(self.spender)
        calls = list(thread.in_progress.values())
        match chance.random():
            case dice if dice < 0.66 and calls:
                self._end(chance.choice(calls))
            case dice if dice < 0.80:
                self._decide()
            case dice if dice < 0.90:
                self._say()
            case dice if dice < 0.95:
                name = chance.choice(["retry", "compact", "pause", "pause", "resume", "resume", "resume"])
                thread.signal(name, chance.choice([*GARBAGE, {"by": "bob"}, {"by": "bob", "seconds": HOUR / 2}]))
            case dice if dice < 0.96:
                thread.reset()
            case dice if dice < 0.99:
                elsewhere = {"adopt_policy", "move", "reclassify", "revoke_key"}
                name = chance.choice([*sorted({*SIGNALS} - elsewhere), "what?", ""])
                garbage = chance.choice(GARBAGE)
                for _ in range(RECORDED if self.flooded and name != "say" else 1):
                    thread.signal(name, garbage)
                thread.update(
                    chance.choice(sorted({*UPDATES} - elsewhere - {"compact", "pause", "retry"})),
                    chance.choice(GARBAGE),
                )
                self._delegate()
            case _ if not thread.run.log.length:
                pass  # stopping a thread before its past is read would lose decisions
            case dice if dice < 0.995:
                thread.cancel()
            case _ if thread.intact:
                self.terminated = True
                thread.reopen("begin again")
            case _:
                pass

    def _wind_up(self) -> None:
        """Bring the thread to its end without more faults."""
        thread = self.thread
        self.rates = dict.fromkeys(self.rates, 0.0) | {"end": 1.0}
        thread.continue_suggested = False
        for _ in range(500):
            if thread.closed:
                return
            if thread.state.pause:
                thread.signal("resume", {"by": "bob"})
            elif thread.state.blocked and thread.state.blocked.cause == BUDGET_SPENT:
                more = {"steps": 50, "tokens": 200_000, "seconds": 100 * HOUR}
                outcomes = [thread.update("extend", {"by": by, **more})["outcome"] for by in PEOPLE]
                if "accepted" not in outcomes:
                    thread.cancel()  # all of them have asked for something, and may not extend it
            elif thread.state.blocked:
                thread.signal("retry", {"by": "bob"})
            elif request := next(iter(thread.state.authority.requests), None):
                decision: DecisionKind = "deny" if request.kind == "approval" else "abandon"
                outcomes = [thread.decide(request.id, decision, by=by) for by in PEOPLE]
                self.accepted += [request.id] if "accepted" in outcomes else []
                if not {"accepted", "too_late"} & set(outcomes):
                    thread.advance(seconds=60)  # an approver has escalated, so more approvers will be asked
            elif thread.state.status == "dormant":
                thread.signal("wake", {"by": "bob"})
            else:
                self._end(next(iter(thread.in_progress.values())))
        raise AssertionError("the run does not end")

    def _end(self, call: Call | Sleep) -> None:
        """End a call."""
        thread, chance = self.thread, self.chance
        match call.request if isinstance(call, Call) else call:
            case Sleep():
                thread.wake()
            case Notice():
                if chance.random() < 0.2:
                    thread.fail(call, "NotTold")
                else:
                    thread.deliver(call)
            case StartSubagentsRequest() | CheckSubagentsRequest() | EndSubagentsRequest() | AnnounceEnd():
                assert isinstance(call, Call)
                self._end_of_children(call)
            case ThreadRequest():
                thread.load_thread()
            case AgentRequest():
                thread.load(self.features)
            case EffectsRequest():
                thread.load_effects(*self._past())
            case LLMRequest(compacting=True):
                self._reply_to_compaction()
            case LLMRequest():
                self._reply()
            case ToolRequest() as request:
                assert isinstance(call, Call)
                if chance.random() < 0.1:
                    thread.fail(call, "TimeoutError", cancelled=chance.random() < 0.5)
                else:
                    status = chance.choice(["ok", "ok", "failed", "unknown"])
                    content = f"result {call.number} {chance.choice(TEXTS)}"
                    if self.repeating:
                        content = "as before"
                    more: dict[str, Any] = {}
                    if request.cannot and chance.random() < self.rates["cannot"]:
                        until = chance.choice([None, thread.at + timedelta(seconds=chance.choice([-1, 60, HOUR]))])
                        status, more = "cannot", {"scope": chance.choice(["here", "everywhere"]), "until": until}
                    thread.end(call, ToolOutcome.model_validate({"status": status, "content": content, **more}))
            case PreviewRequest(request=request_id):
                if chance.random() < 0.1:
                    thread.fail(call, "TimeoutError")
                else:
                    thread.preview(f"+ {request_id} {chance.choice(TEXTS)}", base=chance.choice(["", "v1"]))
            case ArchiveRequest() as archiving:
                if chance.random() < self.rates["refusal"]:
                    thread.archive_unsettled(chance.randrange(archiving.stop - archiving.start))
                elif chance.random() < self.rates["conflict"]:
                    thread.archive_refused(RECORD_CONFLICT)
                else:
                    thread.archive()

    def _end_of_children(self, call: Call) -> None:
        """End a call about sub-agents: some of them cannot be started, some have ended."""
        chance = self.parent or self.chance
        match call.request:
            case StartSubagentsRequest(children=children):
                started = [
                    StartedSubagent(number=subagent.number, problem="taken")
                    if chance.random() < 0.1
                    else StartedSubagent(number=subagent.number, run_id=f"c{subagent.number}")
                    for subagent in children
                ]
                self.thread.end(call, StartedSubagents(children=tuple(started)))
            case CheckSubagentsRequest(children=refs) | EndSubagentsRequest(children=refs):
                ended = self.rates["end"] == 1.0
                reports = [
                    SubagentReport(
                        number=ref.number,
                        status=chance.choice(["completed", "failed", "terminated", "lost"]),
                        text=chance.choice(TEXTS),
                        trust=chance.choice(["agent", "web"]),
                        constraints=chance.choice([(), (InheritedConstraint(tool="look", reason="no"),)]),
                        cost=chance.choice([None, TreeCost(steps=2), TreeCost(steps=9, tokens=70, more_steps=5)]),
                    )
                    for ref in refs
                    if ended or chance.random() < 0.6
                ]
                self.thread.end(call, SubagentReports(reports=tuple(reports)))
            case _:
                self.thread.end(call, Announced())

    def _past(self) -> list[PastEffect]:
        """Simulate what happened before a reset: to waiting calls, and to calls that the LLM may still make."""
        chance, state = self.chance, self.thread.state
        waiting = [(call.number, call.call) for call in state.calls.current if not call.begun and chance.random() < 0.5]
        tool_calls = [ToolCall(id="", name="pay", arguments=f'{{"at":{chance.randrange(3)},"n":2}}') for _ in range(2)]
        later = list(enumerate(tool_calls, state.calls.count + 1))
        first = state.origin.first_run_id
        return [
            PastEffect(
                number=number,
                first_run_id=first,
                tool=call.name,
                call_digest=call.digest,
                key=effect_key(thread="t", first_run_id=first, number=number, call_digest=call.digest),
                status=chance.choice(["started", "ok", "failed"]),
            )
            for number, call in waiting + later
        ]

    def _reply(self) -> None:
        thread, chance = self.thread, self.chance
        tokens = chance.choice([1_500, 4_000]) if chance.random() < self.rates["long"] else 10
        usage = Usage(prompt_tokens=tokens, completion_tokens=1)
        step = thread.state.steps.count
        if thread.state.account.limits and self.losses.random() < 0.2:
            thread.lose(request_tokens=20)
        elif thread.state.ending.learning == "asked" and chance.random() < 0.3:
            thread.refuse(LLM_REJECTED)
        elif chance.random() < self.rates["end"]:
            thread.reply(LLMReply(message=AssistantMessage(content=f"done at {step}"), usage=usage))
        elif chance.random() < self.rates["overflow"]:
            thread.refuse(CONTEXT_TOO_LONG)
        elif chance.random() < 0.05:
            thread.refuse(LLM_REJECTED)
        elif chance.random() < 0.1:
            thread.reply(LLMReply(rejected="it is empty.", usage=usage))
        else:
            names = chance.choices(
                ["look", "look", "pay", "pay", "wipe", "nonsense", "keep", "note_learning"], k=chance.randint(1, 5)
            )
            tool_calls = tuple(
                ToolCall(id=f"c{step}.{n}", name=name, arguments=f'{{"n": {n}, "at": {chance.randrange(3)}}}')
                for n, name in enumerate(names)
            )
            tool_calls = (*self._sleeps(self.sleeper, step), *tool_calls) if self.sleeper else tool_calls
            tool_calls = (*self._delegates(self.parent, step), *tool_calls) if self.parent else tool_calls
            problems = {call.id: "n: too small" for call in tool_calls if chance.random() < 0.1}
            blocks = (ReasoningBlock(text="…"), *blocks_of(chance.choice(["", *TEXTS])), *tool_calls)
            message = AssistantMessage(content=blocks)
            thread.reply(LLMReply(message=message, problems=problems, usage=usage))

    def _reply_to_compaction(self) -> None:
        thread, chance = self.thread, self.chance
        if thread.state.account.limits and self.losses.random() < 0.2:
            thread.lose(request_tokens=20)
        elif chance.random() < self.rates["overflow"] / 2:
            thread.refuse(CONTEXT_TOO_LONG)
        elif chance.random() < self.rates["overflow"]:
            tool_calls = (ToolCall(id="f", name="look", arguments="{}"),)
            message = chance.choice([None, AssistantMessage(content=" "), AssistantMessage(content=tool_calls)])
            thread.reply(LLMReply(message=message, usage=Usage(prompt_tokens=9)))
        else:
            summary = f"summary at step {thread.state.steps.count} {chance.choice(TEXTS)}"
            thread.reply(LLMReply(message=AssistantMessage(content=summary), usage=Usage(prompt_tokens=9)))

    def _decide(self) -> None:
        thread, chance = self.thread, self.chance
        if thread.waiting(EffectsRequest):
            return  # a signal would count later, and its outcome would be missed
        request = str(chance.randint(0, thread.state.authority.request_count + 1))
        decision = chance.choice(DECISIONS)
        if thread.state.authority.requests and chance.random() < 0.8:
            one = chance.choice(thread.state.authority.requests)
            request = one.id
            if chance.random() < 0.9:
                decision = chance.choice(one.answers)
        fields: dict[str, Any] = {
            "by": chance.choice(PEOPLE),
            "reason": "because",
            "result": chance.choice([None, "so"]),
        }
        if decision == "approve":
            fields["arguments"] = chance.choice([None, None, {"n": 4, "at": chance.randrange(4)}])
            fields["remember"] = chance.random() < 0.2
        if chance.random() < 0.5:
            outcome = thread.decide(request, decision, **fields)
        else:
            name = decision if decision in SIGNALS else "reconcile"
            before = len(thread.log)
            thread.signal(name, {"request": request, "decision": decision, **fields})
            received = [event for event in thread.log[before:] if isinstance(event, DecisionReceived)]
            outcome = received[-1].outcome if received and received[-1].request == request else ""
        self.accepted += [request] if outcome == "accepted" else []

    def _delegate(self) -> None:
        """Delegate approval authority, or revoke or remove something."""
        thread, chance = self.thread, self.chance
        by, to = chance.choice(PEOPLE), chance.choice(PEOPLE)
        thread.update("delegate_authority", {"by": by, "to": to, "seconds": chance.choice([0, 60, HOUR])})
        rules = [rule.rule for rule in thread.state.authority.rules]
        what = {"remembered": chance.choice([*rules, 9])} if chance.random() < 0.6 else {"delegated_to": to}
        thread.signal("revoke", {"by": by, **what})
        numbers = [constraint.number for constraint in thread.state.constraints.kept]
        thread.signal("lift", {"by": by, "constraint": chance.choice([*numbers, 9])})

    def _polls(self, chance: random.Random, step: int) -> tuple[ToolCall, ...]:
        """Return a call that polls, or that should."""
        tool = chance.choice(["look", "look", "keep", "pay"])
        condition = chance.choice(['{"contains": "fine"}', '{"changes": true}', '{"lacks": "result"}', "{}"])
        until = chance.choice(["null", '"20m"', '"2h"'])
        text = f'{{"tool": "{tool}", "arguments": {{"n": 1}}, "condition": {condition}, "until": {until}}}'
        return (ToolCall(id=f"p{step}", name="check_back", arguments=text),) if chance.random() < 0.4 else ()

    def _sleeps(self, chance: random.Random, step: int) -> tuple[ToolCall, ...]:
        """Return calls that sleep, or that should."""
        waits = (f'{{"name": "{chance.choice("abc!")}"}}', '{"name": "a", "match": {"n": 1}, "until": "20m"}')
        chosen = chance.choices(
            [("sleep_until", f'{{"until": "{chance.choice([0, 60, 900, "?"])}"}}')]
            + [("wait_for_event", each) for each in waits],
            k=chance.choice([0, 0, 1, 2]),
        )
        sleeping = (ToolCall(id=f"s{step}.{n}", name=name, arguments=text) for n, (name, text) in enumerate(chosen))
        return (*sleeping, *self._polls(chance, step))

    def _delegates(self, chance: random.Random, step: int) -> tuple[ToolCall, ...]:
        """Return calls that run sub-agents, or that should."""
        candidates: list[tuple[str, dict[str, Any]]] = [
            (
                "run_agent",
                {"agent": chance.choice(["helper", "helper", "stranger"]), "task": chance.choice(["help", "risky"])},
            ),
            ("run_agent", {"agent": "helper", "task": "help", "background": True}),
            ("agent_result", {"thread": f"t.{chance.randrange(1, 1 + self.thread.state.calls.count + 1)}"}),
        ]
        chosen = chance.choices(candidates, k=chance.choice([0, 1, 3]))
        return tuple(
            ToolCall(id=f"d{step}.{n}", name=name, arguments=json.dumps(a)) for n, (name, a) in enumerate(chosen)
        )

    def _wake(self, chance: random.Random) -> None:
        """Send an event, or wake the run."""
        event = {"event": chance.choice("abc"), "id": str(chance.randrange(30)), "data": {"n": chance.randrange(2)}}
        payload = chance.choice([event, event, event, {"by": "bob"}, {"event": "a", "call": chance.randrange(1, 9)}])
        if chance.random() < 0.5 or self.thread.waiting(EffectsRequest | ThreadRequest):
            self.thread.signal("wake", payload)
        else:
            self.thread.update("wake", payload)

    def _extend(self, chance: random.Random) -> None:
        """Extend the budget, or try to."""
        more: Any = chance.choice(
            [{"steps": 1}, {"steps": 4, "tokens": 5_000}, {"seconds": 2 * HOUR}, {"usd": "1"}, {"steps": 0}]
        )
        payload = {"by": chance.choice([*PEOPLE, "agent"]), "id": str(chance.randrange(20)), **more}
        if chance.random() < 0.5 or self.thread.waiting(EffectsRequest | ThreadRequest):
            self.thread.signal("extend", payload)
        else:
            self.thread.update("extend", payload)

    def _say(self) -> None:
        thread, chance = self.thread, self.chance
        if thread.waiting(EffectsRequest):
            return
        text = f"<said {len(self.sent_messages)}>"
        message: Any = (
            text
            if chance.random() < 0.7
            else [{"type": "text", "text": text}, {"type": "image", "url": "https://example.com/a.png"}]
        )
        payload = {"message": message, "when_busy": chance.choice(["queue", "interrupt", "reject"])}
        name = "say"
        if self.features and thread.state.spec and chance.random() < 0.4:
            name, kinds = "refine", get_args(RefinementKind)
            when_busy = chance.choice(["queue", "interrupt"])
            payload = {"kind": chance.choice(kinds), "text": text, "by": chance.choice(PEOPLE), "when_busy": when_busy}
        outcome = thread.update(name, payload)["outcome"]
        assert outcome in ("accepted", "queued", "interrupting", "busy", "too_late")
        self.sent_messages[text] = outcome


@cache
def play(seed: int) -> RandomRun:
    """Return the play with that number. One process of a test run plays it, and the others read it."""
    if not SHARED.name.startswith("tests-"):  # it may outlive this run
        return RandomRun(seed)
    file = SHARED / f"play-{seed}.pickle"
    with suppress(FileNotFoundError):
        return cast(RandomRun, pickle.loads(file.read_bytes()))
    played = RandomRun(seed)
    own = file.with_suffix(f".{os.getpid()}")
    own.write_bytes(pickle.dumps(played))
    own.replace(file)
    return played
