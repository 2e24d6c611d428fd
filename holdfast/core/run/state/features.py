"""The feature level of a run: which release's behaviour its history was recorded with.

A run is replayed by later releases. What they add must not change a replay, so code that does something new asks for
the level from which on a run has it: `state.features >= LEVEL`.

1. The level follows from what history holds: an answer of `load_agent`, or of `archive` where the run continues as new
   (continue-as-new). There no call to the LLM or of a tool is under way, so none begins under one level and ends under
   another. A loop takes it from its surveys.
2. A client's start carries no level: a new thread has level 0, which every release has, until its agent is loaded. So
   a client may be newer than the workers. A start by a schedule's launcher carries the launcher's level, because only a
   worker of a release with schedules runs a launcher; an older one leaves the run to it.
3. The level of a thread never falls. A worker whose release lacks it fails the workflow task, never the run, and a
   newer worker takes the task.
4. What only a level has (an event, a field of the state, a command, a new value) is recorded at that level only, and an
   activity does what is new only where its request asks for it. So an older worker never meets it in a run that it
   accepts.

To add a level, add a line to `LEVELS`; releases never change or remove a line. To gate something new, name its level as
a constant here, and ask for it.
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
}
"""Feature level → what it adds, and in which release."""

FEATURES = max(LEVELS)
"""The level of this release."""

# What a run has from a level on.

RESULT_NAMES_LLM = 1
"""A run's result names the LLM that it used."""

INTERRUPT_NAMES_TOOLS = 1
"""The answer to a message that interrupts says which tools it waits for."""

RESULT_NAMES_RUN = 1
"""A run's result names its chain of Temporal runs, so that a copy of it is not the result of another one."""

COMPACTION_MUST_HELP = 1
"""A context is compacted by size only where half of it can go (`Context.is_full`)."""

COMPACT_ON_REQUEST = 1
"""The signal and update `compact`."""

CONSTRAINTS = 1
"""A tool's `Cannot` makes a constraint, which the signal and update `lift` lifts. Below it, the call has failed."""

PAUSE_BY_PERSON = 1
"""The signals and updates `pause` and `resume`."""

MANDATES_NEED_AGENT = 1
"""Delegations, revocations and lifts are refused before the agent is loaded. Below it, anybody who reaches a reopened
run can revoke the thread's rules and delegations until then, although the policy requires signatures."""

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
"""The step at the end of a run in which the LLM is asked what it has learnt (`Memory.learn`)."""

LOOP_GUARD = 1
"""Repeated calls are counted (`holdfast.core.run.rules.loop_guard`): they start later, the LLM is told, people are
asked.
"""

FAILED_ATTEMPTS = 1
"""The outcome of a call says which attempts at it failed, and in a word why it failed itself."""

FORKS = 1
"""A start may fork a thread; such a start carries this level, so that older workers leave it to newer ones."""

LOOP_LOG = 1
"""A loop writes its log into the permanent record, and is paused, resumed and retried with a run's words."""

SUBAGENTS = 1
"""The tools `run_agent` and `agent_result`, the lineage of a start, and the signal `subagent_ended`."""


MOVES = 1
"""The signal and update `move`, the outcome `moved`, and starts that import a thread, which carry this level."""

BUDGETS = 1
"""A run may have a budget, of which it keeps an account; the signal and update `extend`."""

OUTCOMES_HAVE_MACS = 1
"""Workers put a MAC of the fleet on each outcome in the effect ledger, and adopt none without one."""

CUT_OFF_CALLS = 1
"""The last call of a reply that the LLM itself did not end never runs, whatever the worker that read it says."""

BLOCK_SAYS_WHY = 1
"""Where too many replies in a row could not be used, the block has the reason for the last one."""

SIZED_REQUESTS = 1
"""A reply has the size of its request if the provider counts far fewer tokens, and the context is compacted by that."""

LOOP_BUDGETS = 1
"""A loop keeps an account of tokens and money, and hands what is left of it to each iteration as its budget."""

SETTLING = 1
"""A request about a call whose outcome is unknown says until when a request of that call may still arrive."""

UNSAFE_ONCE_A_REPLY = 1
"""A call of an `unsafe` tool that the policy allows does not run where the reply has the same call before it; where
people are asked, they read that."""

KEEPS_TRUST = 1
"""Every run keeps the trust level of what its LLM has read, and files keep the level `web` of what was written into
them. Below it, only runs do whose agent depends on it, and sub-agents."""

CANCEL_REASON = 1
"""The result of a cancelled run says why it was cancelled."""

UNREAD_CLAIMS = 1
"""A signal that does not decode is recorded as refused. Below it, as in 0.1.0, it leaves no trace."""

BOUNDED_CONDITIONS = 1
"""A condition of a policy that would take too long cannot be evaluated (`holdfast.core.authority.condition_costs`)."""

LINEAR_SCHEMAS = 1
"""Arguments that people edit are checked in linear time (`holdfast.core.tools.argument_schema`)."""

EVERY_POLICY_ASKS = 1
"""A call asks for the approval that every policy requires which judges it, by its own terms, people and signatures; and
whoever changes what may run is somebody whom all of them let (`holdfast.core.run.rules.policies`). Below it, the policy
of the agent alone says who decides.
"""

EDITS_ASK_ANEW = 1
"""Arguments that one of several voters has changed open a new request. Below it, the request keeps its id."""

SIGNED_STEERING = 1
"""`pause`, `resume`, `retry` and `move` are signed where decisions are, and a pause by an approver, or one that is
signed, is ended by another such person alone. Below it, anybody steers a run by their own claim."""

LOGINS = 1
"""A decision says from which login it came, and whether one login has cast the votes of several people."""

KEYS_REVOKED = 1
"""The signal and update `revoke_key`."""


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
