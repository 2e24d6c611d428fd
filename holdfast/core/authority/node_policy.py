"""A node's own policy: whether the node executes a run, and each of its tool calls.

1. The run's recorded policies have judged the work before. The node can only be stricter: what it denies does not run
   on it, and what it asks about runs only if people have approved it.
2. A step of a run is judged by the rules for the tool `execute_run`, by that exact name, so that a rule for every tool
   keeps its meaning. A node executes a run that no such rule is about.
3. If the run has recorded the same policy, only these rules are left to judge.
"""

from holdfast.core.authority.policy import Policy, ToolUse, Verdict, evaluate, is_about
from holdfast.core.tools.effects import Effect

EXECUTE_RUN = "execute_run"
"""The name, in the rules of a node's policy, of the execution of a run by the node."""


def judge_run(policy: Policy, *, agent: str, depth: int) -> Verdict:
    """Judge the next step of a run on a node.

    Args:
        policy: The node's own policy.
        agent: The run's agent.
        depth: How many agents are above the run.
    """
    rules = tuple(rule for rule in policy.rules if rule.tool == EXECUTE_RUN)
    use = ToolUse(tool=EXECUTE_RUN, effect=Effect.READ, agent=agent, depth=depth)
    return evaluate(policy.model_copy(update={"rules": rules}), use)


def tool_verdict(policy: Policy, *, tool: str, effect: Effect, agent: str, depth: int) -> Verdict | Policy:
    """Return the verdict on all calls of a tool; if a condition on the call decides, the policy's rules about them.

    Args:
        policy: The node's own policy.
        tool: The tool's name.
        effect: Its effect class.
        agent: The agent that calls it.
        depth: How many agents are above the run.
    """
    use = ToolUse(tool=tool, effect=effect, agent=agent, depth=depth)
    rules = tuple(rule for rule in policy.rules if rule.verdict != "later" and is_about(rule, use))
    return policy.model_copy(update={"rules": rules}) if rules and rules[0].when else evaluate(policy, use)
