"""The verdict on a call: it is allowed, approval is required, or it is denied. Pure functions over the run's state.

1. The policy judges every call, also with arguments that people have changed.
2. A remembered rule overrides only "approval required": a call that the policy denies stays denied.
3. A constraint (`holdfast.core.run.rules.constraints`) refuses a call before it is judged here.
4. A call that records learnings waits for approval no longer than the end of a run may take. If the LLM has read
   untrusted results, it always requires approval (`holdfast.core.run.rules.closing_work`).
5. A call that polls another is judged together with it: the stricter verdict counts.
6. If a call repeats itself, the loop guard has the last word (`holdfast.core.run.rules.loop_guard`).
7. In a fork, effects require approval until an approver lifts that (`holdfast.core.run.rules.forks`).
8. The policies of the runs above a sub-agent judge its calls, too, and so do policies given with a fork: the strictest
   verdict counts. Each policy that asks adds its own terms and people (`holdfast.core.authority.votes`).
9. A call that gives the run's result is allowed, like a reply that ends it (`holdfast.core.run.decide.results`).
10. If the LLM has read untrusted results, tools that are for trusted content only require approval.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.authority.condition_costs import Budget
from holdfast.core.authority.interventions import REFINE_TOOL
from holdfast.core.authority.policy import Policy, Requirement, Terms, ToolUse, Verdict, VerdictKind, evaluate
from holdfast.core.authority.votes import joined
from holdfast.core.base.canonical import parsed
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.run.rules.authority import ask_all_policies, policies_above, requirements_of_all
from holdfast.core.run.rules.forks import judge_in_fork
from holdfast.core.run.rules.loop_guard import guard_verdict
from holdfast.core.run.rules.remembered_approvals import rule_for
from holdfast.core.run.rules.typed_context import context_variable
from holdfast.core.run.state.features import BOUNDED_CONDITIONS, EVERY_POLICY_ASKS
from holdfast.core.run.state.progress import LEARNING_SECONDS, LEARNING_TOOLS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.numbers import with_floats
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.core.trust import Trust, is_tainted

_STRICTNESS: Mapping[VerdictKind, int] = {"allow": 0, "ask": 1, "deny": 2}


def judge_call(state: RunState, call: ToolCall) -> Verdict:
    """Judge a call of a tool that the agent has: `allow`, `ask` (approval required) or `deny`."""
    if call.name == FINAL_RESULT and state.carries_out_tool(call.name):
        return Verdict(verdict="allow", rule="the agent's own result")
    verdict = _apply_remembered_rule(state, call, policy_verdict(state, call))
    calls = _calls(state, call)
    if approval_required(verdict) and len(calls) > 1:
        verdict = _stricter(
            state, calls, [_apply_remembered_rule(state, each, _verdict(state, each)) for each in calls]
        )
    if call.name == REFINE_TOOL and state.carries_out_tool(call.name) and verdict.verdict != "deny":
        verdict = _require_approval_of_refinement(state, verdict)
    return guard_verdict(state, call, verdict)


def policy_verdict(state: RunState, call: ToolCall) -> Verdict:
    """Judge a call by the policy alone, without the thread's remembered rules."""
    calls = _calls(state, call)
    return _stricter(state, calls, [_verdict(state, each) for each in calls])


def _calls(state: RunState, call: ToolCall) -> tuple[ToolCall, ...]:
    assert state.spec is not None
    return state.spec.calls_of(call)


def _apply_remembered_rule(state: RunState, call: ToolCall, verdict: Verdict) -> Verdict:
    """Return the verdict on a call after the thread's remembered rules."""
    if approval_required(verdict) and (rule := rule_for(state, call, verdict)):
        by = ", ".join(vote.by for vote in rule.votes)
        lifted = {"verdict": "allow", "rule": f"remembered {rule.rule} (by {by})", "reason": ""}
        return verdict.model_copy(update={**lifted, "remembered": rule.rule})
    return verdict


def _stricter(state: RunState, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> Verdict:
    """Return the strictest of the verdicts on a call and on the call that it polls. If both ask, return the one that
    asks more people, or else the one on the polled call, with the requirements of both.
    """
    own = verdicts[0]
    asking = [verdict for verdict in verdicts if approval_required(verdict)]
    for polled, verdict in zip(calls[1:], verdicts[1:], strict=True):
        stricter = _STRICTNESS[verdict.verdict] > _STRICTNESS[own.verdict]
        both_ask = verdict.verdict == own.verdict == "ask" and verdict.terms.quorum >= own.terms.quorum
        both_lifted = verdict.verdict == own.verdict and verdict.remembered and not own.remembered
        if stricter or both_ask or both_lifted:
            why = f"it calls {polled.name} again and again" + (f": {verdict.reason}" if verdict.reason else "")
            own = verdict.model_copy(update={"reason": why})
    if approval_required(own) and state.features >= EVERY_POLICY_ASKS:
        return _with_requirements(own, [required for verdict in asking for required in verdict.required])
    return own


def _with_requirements(verdict: Verdict, asked: Sequence[Requirement]) -> Verdict:
    """Return the verdict with all these requirements; with none if only the agent's own policy asks, and once."""
    requirements = joined((), asked)
    if [(each.policy, each.terms) for each in requirements] == [("", verdict.terms)]:
        requirements = ()
    return verdict.model_copy(update={"requirements": requirements})


def tool_use(state: RunState, call: ToolCall) -> ToolUse | None:
    """Return a call as policies judge it; None if the agent has no such tool."""
    spec = state.spec
    tool = spec.tool(call.name) if spec else None
    if spec is None or tool is None:
        return None
    return ToolUse(
        tool=call.name,
        effect=tool.effect,
        arguments=with_floats(parsed(call.arguments), tool.parameters),
        agent=spec.name,
        depth=state.origin.depth,
        workspace=state.workspace,
        trust=state.context.trust,
        context=context_variable(state),
        budget=Budget() if state.features >= BOUNDED_CONDITIONS else None,
    )


def _verdict(state: RunState, call: ToolCall) -> Verdict:
    """Return the verdict of policies and fork on this call itself, without the call that it polls."""
    spec = state.spec
    assert spec is not None
    tool, use = spec.tool(call.name), tool_use(state, call)
    if tool is None or use is None:  # polls of it are refused elsewhere
        return Verdict(verdict="deny", rule="no such tool")
    trust = state.context.trust
    verdict = _with_policies_above(evaluate(spec.policy, use), use, state)
    verdict = judge_in_fork(state, tool, verdict)
    learnt = bool(state.ending.learning) and call.name in LEARNING_TOOLS
    if (tool.trusted_only or learnt) and is_tainted(trust):
        verdict = _require_approval_of_tainted(state, verdict, trust)
    if learnt:  # last, because the terms above replace the rule's
        verdict = verdict.with_terms(_expiring_with_run)
    return verdict


def _expiring_with_run(terms: Terms) -> Terms:
    wait = min(terms.expires_after or LEARNING_SECONDS, LEARNING_SECONDS)
    return terms.model_copy(update={"expires_after": wait})


def _with_policies_above(verdict: Verdict, use: ToolUse, state: RunState) -> Verdict:
    """Return the verdict on a call after the policies above: a call that they deny does not run, and if they ask, the
    people whom they name decide.
    """
    if state.features < EVERY_POLICY_ASKS:
        return _with_own_terms(verdict, use, state)
    asked = [Requirement(rule=verdict.rule, terms=verdict.terms)] if verdict.verdict == "ask" else []
    for policy in policies_above(state):
        above = evaluate(policy, use)
        rule = f"{above.rule} ({_source(state, policy)})"
        if approval_required(above):
            asked.append(Requirement(policy=policy.hash, rule=rule, terms=above.terms))
        if _STRICTNESS[above.verdict] > _STRICTNESS[verdict.verdict]:
            verdict = above.model_copy(update={"rule": rule})
    return _with_requirements(verdict, asked) if approval_required(verdict) else verdict


def _source(state: RunState, policy: Policy) -> str:
    from_fork = state.fork is not None and policy.hash in state.fork.policies
    return "given with the fork" if from_fork else "of the agent above"


def _with_own_terms(verdict: Verdict, use: ToolUse, state: RunState) -> Verdict:
    """Return the same verdict at feature levels at which only the agent's own policy sets the terms."""
    assert state.spec is not None
    for policy in state.origin.policies:
        above = evaluate(policy, use)
        if _STRICTNESS[above.verdict] > _STRICTNESS[verdict.verdict]:
            rule = f"{above.rule} ({_source(state, policy)})"
            verdict = above.model_copy(update={"rule": rule, "terms": state.spec.policy.terms})
    return verdict


def approval_required(verdict: Verdict) -> bool:
    """Return whether people have to approve the call before it runs."""
    return verdict.verdict == "ask"


def denial_of(verdict: Verdict) -> str:
    """Return the result, for the LLM, of a call that the policy denies."""
    return f"Denied by policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")


def _require_approval_of_refinement(state: RunState, verdict: Verdict) -> Verdict:
    """Return the verdict on a call that changes the agent's own task: only a person may approve it."""
    if verdict.verdict == "allow":
        rule, reason = "a refinement by the agent asks", "the agent asks to change its own task"
        requirements = verdict.requirements or requirements_of_all(state, rule)
        verdict = Verdict(verdict="ask", rule=rule, reason=reason, terms=verdict.terms, requirements=requirements)
    return verdict.denied_on_expiry()


def _require_approval_of_tainted(state: RunState, verdict: Verdict, trust: Trust) -> Verdict:
    """Return the verdict on a call that shows tainted content to later agents: only a person may approve it."""
    if verdict.verdict == "allow":
        read = "the web" if trust == "web" else "tools"
        reason = f"the LLM has read results of {read}, and this is put before agents from now on"
        verdict = ask_all_policies(state, rule="tainted memory asks", reason=reason)
    return verdict.denied_on_expiry()
