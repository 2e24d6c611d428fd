"""Verbs about policy files. They need no server."""

from pathlib import Path

from rich.text import Text

from holdfast.authority.explain import Explanation, explain
from holdfast.authority.policy import Policy, ToolUse
from holdfast.errors import PolicyError
from holdfast.runtime.cli.exits import OK, USAGE
from holdfast.runtime.cli.text import brief, count, visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.client.threads import JSON
from holdfast.runtime.config.durations import span_text
from holdfast.runtime.config.policy_file import load_policy
from holdfast.tools.effects import Effect


class Policies(Invocation):
    """Checks policy files, and says what they say."""

    async def check_policy(self, file: Path) -> int:
        """Whether a policy file can be used."""
        policy = self._loaded(file)
        if policy is None:
            return USAGE
        told = {"ok": True, "hash": policy.hash, "rules": len(policy.rules), "signatures": policy.signatures}
        told |= {"approvers": [person.name for person in policy.approvers]}
        told |= {"gateways": [gateway.name for gateway in policy.gateways]}
        self._output.result(told, policy_screen(file, policy))
        return OK

    async def explain_policy(self, file: Path, use: JSON) -> int:
        """Which rule of a policy decides on a call, and why."""
        policy = self._loaded(file)
        if policy is None:
            return USAGE
        explanation = explain(policy, ToolUse(**{**use, "effect": Effect(use["effect"])}))
        self._output.result({**explanation.view(), "hash": policy.hash}, explanation_screen(explanation))
        return OK

    def _loaded(self, file: Path) -> Policy | None:
        """The policy in a file; None where it cannot be used, which is told."""
        try:
            return load_policy(file)
        except PolicyError as error:
            self._output.note(visible(str(error)))
            self._output.result({"ok": False, "problems": [problem._asdict() for problem in error.problems]})
            return None


def policy_screen(file: Path, policy: Policy) -> Text:
    """A policy in a few lines."""
    screen = Text.assemble(("ok  ", "green"), (visible(str(file)), "bold"), f"  hash {policy.hash}\n")
    screen.append(f"    {count(len(policy.rules), 'rule')}; signatures are {policy.signatures}\n")
    for person in policy.approvers:
        roles = f" ({', '.join(person.roles)})" if person.roles else ""
        screen.append(f"    {person.name}{roles}: {count(len(person.keys), 'key')}\n")
    if not policy.approvers:
        screen.append("    no approvers are named: anybody decides\n")
    for gateway in policy.gateways:
        screen.append(f"    gateway {gateway.name}: {count(len(gateway.keys), 'key')}\n")
    screen.rstrip()
    return screen


def explanation_screen(explanation: Explanation) -> Text:
    """The verdict, the rules that were tried, and who may decide."""
    verdict = explanation.verdict
    style = {"allow": "green", "ask": "bold yellow", "deny": "bold red"}[verdict.verdict]
    screen = Text.assemble((verdict.verdict, style), f"  {brief(verdict.rule, 300)}\n")
    if verdict.reason:
        screen.append(f"  {brief(verdict.reason, 300)}\n")
    screen.append("\n")
    for judged in explanation.judged:
        sign = "✓" if judged.applies else "–"
        screen.append(f"  {sign} rules[{judged.number}]  {brief(judged.rule)}", "" if judged.applies else "dim")
        screen.append(f"  {brief(judged.why, 400)}\n", "dim")
    if not explanation.judged or not explanation.judged[-1].applies:
        screen.append(f"  ✓ {verdict.rule}\n")
    if verdict.verdict == "ask":
        screen.append("\n").append_text(_people(explanation))
    screen.rstrip()
    return screen


def _people(explanation: Explanation) -> Text:
    terms = explanation.verdict.terms
    needed = f"{terms.quorum} of " if terms.quorum > 1 else ""
    lines = [f"Decided by {needed}{', '.join(explanation.who) or 'anybody'}"]
    if explanation.veto:
        lines.append(f"Denied also by {', '.join(explanation.veto)}")
    if not terms.requester_may_decide:
        lines.append("Not by who gave the task or a message")
    lines += [f"After {span_text(after)} also {', '.join(who)}" for after, who in explanation.later]
    if terms.remind_every:
        lines.append(f"Reminded every {span_text(terms.remind_every)}")
    if terms.expires_after:
        how = {"deny": "denied", "approve": "approved"}[terms.on_expiry]
        lines.append(f"Without a decision {how} after {span_text(terms.expires_after)}")
    return Text("".join(f"  {line}\n" for line in lines))
