"""Where a call is judged: it is allowed, approval is required, or it is denied. Pure functions over the run's state.

1. The policy judges every call, also with arguments that people have changed.
2. A remembered rule lifts "approval required" and nothing else: what the policy denies stays denied.
3. A constraint (`holdfast.run.constraints`) refuses a call before it is judged here.
4. What the LLM has learnt waits for its approval no longer than the end of a run may take. Where the LLM has read
   results that cannot be trusted, it always requires approval (`holdfast.run.ending`).
5. Where a call repeats itself, the loop guard has the last word (`holdfast.run.repeats`).
6. Where the LLM has read results that cannot be trusted, tools that are for trusted content only require approval.
"""

from holdfast.authority.policy import Terms, ToolUse, Verdict, evaluate
from holdfast.authority.statements import parsed
from holdfast.llm.blocks import ToolCall
from holdfast.run.remembered_rules import rule_for
from holdfast.run.repeats import guarded
from holdfast.run.state import RunState
from holdfast.run.substates.ending import LEARNING_SECONDS, LEARNING_TOOLS
from holdfast.tools.numbers import with_floats
from holdfast.trust import Trust, is_tainted


def judge_call(state: RunState, call: ToolCall) -> Verdict:
    """Judge a call of a tool that the agent has: `allow`, `ask` (approval required) or `deny`."""
    verdict = policy_verdict(state, call)
    if approval_required(verdict) and (rule := rule_for(state, call, verdict.terms)):
        by = ", ".join(vote.by for vote in rule.votes)
        lifted = f"remembered {rule.rule} (by {by})"
        verdict = Verdict(verdict="allow", rule=lifted, terms=verdict.terms, remembered=rule.rule)
    return guarded(state, call, verdict)


def policy_verdict(state: RunState, call: ToolCall) -> Verdict:
    """Judge a call by the policy alone, without the thread's remembered rules."""
    spec = state.spec
    assert spec is not None
    tool = spec.tool(call.name)
    assert tool is not None
    trust = state.context.trust
    verdict = evaluate(
        spec.policy,
        ToolUse(
            tool=call.name,
            effect=tool.effect,
            arguments=with_floats(parsed(call.arguments), tool.parameters),
            agent=spec.name,
            depth=state.origin.depth,
            workspace=state.workspace,
            trust=trust,
        ),
    )
    learnt = bool(state.ending.learning) and call.name in LEARNING_TOOLS
    if (tool.trusted_only or learnt) and is_tainted(trust):
        verdict = _require_approval_of_tainted(verdict, trust, spec.policy.terms)
    if learnt:  # last, for the terms above replace the rule's
        wait = min(verdict.terms.expires_after or LEARNING_SECONDS, LEARNING_SECONDS)
        verdict = verdict.model_copy(update={"terms": verdict.terms.model_copy(update={"expires_after": wait})})
    return verdict


def approval_required(verdict: Verdict) -> bool:
    """Return whether people have to approve the call before it runs."""
    return verdict.verdict == "ask"


def denial_of(verdict: Verdict) -> str:
    """Return what the LLM reads about a call that the policy denies."""
    return f"Denied by policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")


def _require_approval_of_tainted(verdict: Verdict, trust: Trust, terms: Terms) -> Verdict:
    """The verdict on a call that puts tainted content before agents from now on: only a person may approve it."""
    if verdict.verdict == "allow":
        read = "the web" if trust == "web" else "tools"
        reason = f"the LLM has read results of {read}, and this is put before agents from now on"
        verdict = Verdict(verdict="ask", rule="tainted memory asks", reason=reason, terms=terms)
    return verdict.model_copy(update={"terms": verdict.terms.model_copy(update={"on_expiry": "deny"})})
