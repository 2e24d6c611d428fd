"""The feature level of a run: the release whose behaviour its history was recorded with.

Later releases replay a run, and their additions must not change a replay. So code for a new behaviour checks the level
that introduces it: `state.features >= LEVEL`.

1. The level follows from history: from a result of `load_agent`, or of `archive` when the run continues as new
   (continue-as-new). No LLM or tool call is under way then, so none begins under one level and ends under another. A
   loop takes its level from its surveys.
2. A client's start carries no level: a new thread has level 0, which every release has, until its agent is loaded. So
   a client may be newer than the workers. A start by a schedule's launcher carries the launcher's level, because only a
   worker of a release with schedules runs a launcher; an older worker leaves the run to it.
3. The level of a thread never falls. A worker whose release lacks it fails the workflow task, never the run, and a
   newer worker takes the task.
4. Anything that a level adds (an event, a field of the state, a command, a new value) is recorded at that level only,
   and an activity adopts a new behaviour only if its request asks for it. So an older worker never encounters an
   addition in a run that it accepts.

To add a level, add a line to `LEVELS`; releases never change or remove a line. To gate a new behaviour, name its level
as a constant here, and check it. The level of an intervention stands in its row
(`holdfast.core.run.inputs.interventions`).
"""

from collections.abc import Mapping

from holdfast.errors import FeaturesUnknown
from holdfast.version import __version__

LEVELS: Mapping[int, str] = {
    0: "the first release, 0.1.0",
    1: "0.2.0: a run's result names its LLM; an interrupting message says which tools it waits for; `compact`, a "
    "compaction on request; no compaction by size where less than half of the context can go; the status `cannot` of "
    "a call, constraints, and `lift`; `pause` and `resume` by a person; no delegation, revocation or lift before the "
    "agent is loaded; `refine`, a refinement of the task by a person; a start names the schedule that made it; tools "
    "that the run carries out (`sleep_until`, `wait_for_event`, `check_back` and `wait_for_run` with their polls, "
    "`refine_task`), the status `dormant`, `wake`, and two search attributes of such agents; a result names the "
    "artifacts of what was left out of it; `own` calls of a run, which keep progress.txt, and `learning_requested` "
    "before its end; the loop guard, which delays repeated calls, tells the LLM, and asks people; why a tool call "
    "failed, and which attempts at it did; a loop's log, and its pause like a run's; forks of threads; sub-agents "
    "(`run_agent` and `agent_result`), their lineage, `subagent_ended` and `HoldfastRoot`; budgets, the account of "
    "what a run reserves and spends, and `extend`; allowances of sub-agents and of the iterations of loops; `move`, "
    "the outcome `moved`, a destination, and imports; MACs of the outcomes in the effect ledger; a "
    "run's result names its chain of Temporal runs; messages that cannot be read are recorded as refused; the cost of "
    "conditions, and of checks of edited arguments, has a limit; approval by every policy that judges a call; a new "
    "request for arguments that a voter has changed; signed `pause`, `resume`, `retry` and `move`; `revoke_key`; votes "
    "that one login has cast; the last call of a reply that was cut off never runs, and a run that replies block says "
    "why the last one could not be used; a request's own size as a floor of the provider's count; "
    "until when a request of a call with an unknown outcome may still arrive; no second call of an `unsafe` tool that "
    "is the same as one before it in the reply; every run keeps the trust level of what its LLM has read, and a file "
    "that was written at the level `web` keeps that",
    2: "0.3.0: a run that a program's workflow started names it, and its result has a trust level; a message "
    "has its sender's id, with which it counts once; the typed context of a run, which a start gives, tools change "
    "(`context_updated`) and conditions of policies read; a run whose agent's functions fail is blocked; unattended "
    "runs, which fail instead of waiting for a person; the notice `message_awaited`; requests show the text of the "
    "reply that made the call; an approval's `say`, which the LLM reads with the call's result; results of LLM and "
    "tool calls carry a signature of the node that made them (`signed`); a moved thread keeps its trace id; the part "
    "that is missing from a partial result; a poll's result `error`; calls of a tool that does not answer are delayed; "
    "hours in policies (`later`): the offsets of their time zones, and `tool_call_postponed`; how many "
    "agents in a row led to an event; the trust scope of a run, the policies of the nodes that execute it, and "
    "`Cannot` about nodes (`node_awaited`, `node_accepted`, `tool_call_rerouted`); waits that count events; an "
    "agent's LLMs at named endpoints in a fallback order, their options, and which of them replied; previews "
    "of calls, which are computed before people are asked (`preview_requested`); a person's own summary in `compact`; "
    "the pins of foreign tools, in their specs and in the requests of their calls; the run's notes in progress.txt "
    "name its calls, and are committed; the progress file may have another name; stack traces of tools; timers of "
    "waits for people; what a call does, in a sentence of its tool (`consequence`); questions of a foreign server to "
    "people (`answer_requested`, and requests of the kind `question`), and waits for its tasks; a conversation from "
    "elsewhere that a start brings along; `reclassify`, which changes a run's agent, trust level or budget; a start "
    "that continues a thread may lift a constraint; a start names the span that caused it; the cost of each LLM call "
    "by list prices; `events_lost`, a gap that a restored backup leaves; sleep until a constraint ends; requests of a "
    "moved run name the chain whose trace it keeps; `adopt_policy`, by which an open run adopts another policy, and "
    "`policy_changed`; the address of the page",
}
"""Feature level → the release, and its additions."""

FEATURES = max(LEVELS)
"""The level of this release."""

# Behaviours, each with the level that introduces it.

RESULT_NAMES_LLM = 1
"""A run's result names the LLM that it used."""

INTERRUPT_NAMES_TOOLS = 1
"""The answer to a message that interrupts says which tools it waits for."""

RESULT_NAMES_RUN = 1
"""A run's result names its chain of Temporal runs, so that a copy of it cannot pass for another run's result."""

COMPACTION_MUST_HELP = 1
"""A context is compacted by size only if that can halve it (`Context.is_full`)."""

CONSTRAINTS = 1
"""A tool's `Cannot` makes a constraint, which the signal and update `lift` removes. Below it, the call fails."""

AUTHORITY_NEEDS_AGENT = 1
"""Delegations, revocations and lifts are refused before the agent is loaded. Below it, anybody who reaches a reopened
run can revoke the thread's rules and delegations before that, although the policy requires signatures."""

REFINE_TASK = 1
"""The signal and update `refine`."""

SCHEDULED = 1
"""A start by a schedule names the schedule."""

DORMANCY = 1
"""Tools of the kind `runtime`, polls, the signal and update `wake`, and the search attributes `HoldfastWakeAt` and
`HoldfastWaitsFor` of agents that have such tools."""

RESULT_NAMES_ARTIFACTS = 1
"""A tool's result names the artifacts of the images and files that were left out of it."""

KEEPS_PROGRESS = 1
"""The run's own calls, which keep progress.txt (`Memory.progress`)."""

LEARNS = 1
"""The step at the end of a run that asks the LLM for its learnings (`Memory.learn`)."""

LOOP_GUARD = 1
"""Repeated calls are counted (`holdfast.core.run.rules.loop_guard`): they are delayed, the LLM is notified, and people
are asked.
"""

FAILED_ATTEMPTS = 1
"""The outcome of a call lists its failed attempts, and has a short name for why the call itself failed."""

FORKS = 1
"""A start may fork a thread; such a start carries this level, so that older workers leave it to newer ones."""

LOOP_LOG = 1
"""A loop writes its log into the permanent record, and is paused, resumed and retried by the same signals as a run."""

SUBAGENTS = 1
"""The tools `run_agent` and `agent_result`, the lineage of a start, and the signal `subagent_ended`."""


MOVES = 1
"""The signal and update `move`, the outcome `moved`, and starts that import a thread, which carry this level."""

BUDGETS = 1
"""A run may have a budget, with an account of it; the signal and update `extend`."""

OUTCOMES_HAVE_MACS = 1
"""Workers put the fleet's MAC on each outcome in the effect ledger, and adopt no outcome without one."""

CUT_OFF_CALLS = 1
"""The last call of a reply that was cut off never runs, even if the worker that read the reply accepted it."""

BLOCK_SAYS_WHY = 1
"""If too many replies in a row could not be used, the block has the reason for the last one."""

SIZED_REQUESTS = 1
"""A reply records its request's own size if the provider counts far fewer tokens; compaction goes by that size."""

LOOP_BUDGETS = 1
"""A loop keeps an account of tokens and money, and gives each iteration the rest of it as its budget."""

SETTLING = 1
"""A request about a call with an unknown outcome says until when a request of that call may still arrive."""

UNSAFE_ONCE_A_REPLY = 1
"""A call of an `unsafe` tool that the policy allows does not run if the reply has the same call before it; if people
are asked about it, the request says so."""

KEEPS_TRUST = 1
"""Every run keeps the trust level of its LLM's input, and a file that was written at the level `web` keeps that.
Below it, only sub-agents do, and runs whose agent depends on it."""

CANCEL_REASON = 1
"""The result of a cancelled run says why it was cancelled."""

UNREAD_CLAIMS = 1
"""A signal that cannot be decoded is recorded as refused. Below it, as in 0.1.0, it leaves no trace."""

BOUNDED_CONDITIONS = 1
"""The cost of evaluating a policy's condition has a limit (`holdfast.core.authority.condition_costs`)."""

LINEAR_SCHEMAS = 1
"""Arguments that people edit are checked in linear time (`holdfast.core.tools.argument_schema`)."""

EVERY_POLICY_ASKS = 1
"""A call needs the approval that each policy that judges it requires, by that policy's own terms, people and
signatures. Changing what may run takes the permission of all of them (`holdfast.core.run.rules.authority`). Below it,
the agent's own policy alone determines who decides.
"""

EDITS_ASK_ANEW = 1
"""If one of several voters changes the arguments, a new request opens. Below it, the request keeps its id."""

SIGNED_STEERING = 1
"""`pause`, `resume`, `retry` and `move` are signed if decisions are. A signed statement ends a signed pause, and an
approver an approver's. Below it, anybody can steer a run by an unauthenticated claim."""

LOGINS = 1
"""A decision records the login that it came from, and whether one login has cast the votes of several people."""

KEYS_REVOKED = 1
"""The signal and update `revoke_key`."""

TYPED_CONTEXT = 2
"""A start may have a typed context, and carries this level; calls of tools that want it, and requests about them, have
it."""


CALLED = 2
"""A start by a program's workflow names that workflow; such a start carries this level. The run's result has the trust
level of the reply."""


MESSAGE_IDS = 2
"""A message with an id counts once, signed or not. Below it, only signed messages have an id."""

UNATTENDED = 2
"""A run may be unattended: what would wait for a person fails it. A sealed start of such a run carries this level, and
a plain one fails if the worker that loads the agent lacks it."""

ANSWERS_NOTIFIED = 2
"""People are notified when an open thread has answered (`message_awaited`)."""

CLAIMS = 2
"""Approval requests show the LLM's text in the reply that made the call (`Calls.claim`)."""

FEEDBACK = 2
"""The field `say` of an approval. Below it, a decision is read without that field, as an older release reads it."""

SIGNED_RESULTS = 2
"""The result of an LLM or tool call is recorded with the signature of the node that made it (`signed`)."""

TOOL_PINS = 2
"""The request of a call has the pin of the foreign tool that the LLM was shown."""


FOREIGN_WAITS = 2
"""A call of a foreign tool may return a question, which people answer (`answer_requested`), or a task, which the run
polls (`TaskTrigger`)."""

PREVIEWS = 2
"""Tools with `@tool(preview=…)` compute what a call would do before people are asked about it."""

CONSEQUENCES = 2
"""A request shows what the call does, in the sentence of its tool (`@tool(consequence=…)`)."""

OWN_SUMMARIES = 2
"""The field `summary` of `compact`. Below it, the request is read without that field, as an older release reads it."""


JUDGED_LOADS = 2
"""An audit compares the name of the agent that was loaded with the start's."""

LOSSES = 2
"""The log says which events a restored backup lacks (`events_lost`), and carries this level."""

LIFTS_ON_START = 2
"""A start that continues a closed thread may lift one of its constraints, and carries this level."""

CONVERSATIONS = 2
"""A start may bring a conversation along, and carries this level: a worker that lacks it would ignore the
conversation."""

PROVIDERS = 2
"""A run records its agent's LLMs at named endpoints (`AgentSpec.llms`), their options, and with each reply the endpoint
and the LLMs that were passed over."""


KEEPS_TRACE = 2
"""An imported thread keeps its trace id, which its requests name. Below it, the trace id follows from the chain of
Temporal runs alone."""
PARTIAL_RESULTS = 2
"""The outcome of a call names the part of its result that is missing (`Partial`). Below it, the result's text does."""

OUTCOME_KINDS = 2
"""A poll that the tool answered with an error is an `error`, and a time-out or no response follows from the
recorded cause. Below it, any failure that took less than the tool's time limit is `no_response`."""

PACES_CALLS = 2
"""Calls of a tool that does not answer are delayed (`holdfast.core.run.rules.pacing`)."""

NOTES_CALLS = 2
"""The run's own notes in progress.txt name its calls that have an effect."""

COMMITS_PROGRESS = 2
"""Notes in the progress file are committed to git, and the file may have another name (`Memory.progress_file`)."""

STACK_TRACES = 2
"""The result of a call names the artifact with the stack trace of the tool's exception."""

SHOWS_WAITS = 2
"""A wait for people has a timer, whose summary says what the run waits for (`holdfast.core.run.decide.decide`)."""

HOURS = 2
"""Policies may have hours (`later`), outside of which calls are postponed."""

AGENT_EVENTS = 2
"""An event says how many agents in a row led to it (`WakeReceived.hops`)."""

COUNTED_EVENTS = 2
"""A wait may count events (`EventTrigger.count`)."""

CONSTRAINT_TRIGGERS = 2
"""A call of `sleep_until` may wait for the end of a constraint (`ConstraintTrigger`)."""

POLICY_CHANGES = 2
"""The signal and update `adopt_policy`, and the event `policy_changed` that wakes calls, which only the run sends."""

PLACES = 2
"""A run may have a trust scope; nodes judge its work by their own policies, and a tool may say that it cannot run on
them. A start with a scope carries this level: a worker that lacks it would ignore the scope."""


TRACE_LINKS = 2
"""A start may name the span that caused it (`traceparent`), and carries this level: the log of a worker that lacks it
would be another one."""


RECORDS_COSTS = 2
"""The cost of each LLM call by list prices is recorded. Below it, only with a budget of money."""

PAGE_LINKS = 2
"""The agent's load records the address of the page, to which the details in Temporal's Web UI link."""


def level_of_start(
    *,
    others: int = 0,
    context: object = None,
    when_blocked: str | None = None,
    scope: object = (),
    conversation: object = (),
    traceparent: str = "",
) -> int:
    """Return the feature level that a sealed start carries: a worker that lacks it would ignore what the start asks.

    Args:
        others: The level that the rest of the start needs.
        context: The run's typed context; None for no context.
        when_blocked: What the start says about a run that needs a person; None if it says nothing.
        scope: The nodes that may execute the run; empty for all.
        conversation: The conversation that it brings along; empty for none.
        traceparent: The span that caused it; empty for none.
    """
    asked = (TYPED_CONTEXT if context is not None else 0, UNATTENDED if when_blocked else 0, PLACES if scope else 0)
    return max(others, *asked, CONVERSATIONS if conversation else 0, TRACE_LINKS if traceparent else 0)


def require_features(level: int) -> None:
    """Refuse a run of a level that this release lacks.

    Raises:
        FeaturesUnknown: The level is above `FEATURES`.
    """
    if level > FEATURES:
        raise FeaturesUnknown(
            f"this run has feature level {level}, and this release of Holdfast ({__version__}) has levels up to "
            f"{FEATURES}: upgrade it here. A worker of a newer release can take the run meanwhile."
        )
