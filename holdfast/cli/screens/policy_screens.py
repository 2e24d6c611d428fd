"""Screens of the `policy` verbs: a policy in a few lines, the verdict on a call, and who adopts a policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.text import Text

from holdfast.cli.text import brief, count, visible
from holdfast.core.authority.explain import Explanation
from holdfast.core.authority.policy import Policy
from holdfast.core.base.durations import span_text


def policy_screen(file: Path, policy: Policy, warnings: Sequence[str] | None) -> Text:
    """Return the screen of a policy, in a few lines.

    Args:
        file: The policy's file.
        policy: The policy.
        warnings: Probable mistakes, by comparison with a catalog; None if there was no comparison.
    """
    screen = Text.assemble(("ok  ", "green"), (visible(str(file)), "bold"), f"  hash {policy.hash}\n")
    screen.append(f"    {count(len(policy.rules), 'rule')}; signatures are {policy.signatures}\n")
    for person in policy.approvers:
        roles = f" ({', '.join(person.roles)})" if person.roles else ""
        screen.append(f"    {person.name}{roles}: {count(len(person.keys), 'key')}\n")
    if not policy.approvers:
        screen.append("    the policy names no approvers: anybody may decide\n")
    for gateway in policy.gateways:
        screen.append(f"    gateway {gateway.name}: {count(len(gateway.keys), 'key')}\n")
    for signer in policy.signers:
        screen.append(f"    signer of files {signer.name}: {count(len(signer.keys), 'key')}\n")
    if policy.rules and warnings is None:
        screen.append("    --catalog MODULE:ATTRIBUTE names rules that match none of its tools\n", "dim")
    for warning in warnings or ():
        screen.append("warning  ", "yellow").append(f"{visible(warning)}\n")
    screen.rstrip()
    return screen


def explanation_screen(explanation: Explanation) -> Text:
    """Return the screen of the verdict, the rules up to the one that matched, and who may decide."""
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
        lines.append("Not by the person who gave the task or a message")
    lines += [f"After {span_text(after)} also {', '.join(who)}" for after, who in explanation.later]
    if terms.remind_every:
        lines.append(f"Reminded every {span_text(terms.remind_every)}")
    if terms.expires_after:
        how = {"deny": "denied", "approve": "approved"}[terms.on_expiry]
        lines.append(f"Without a decision {how} after {span_text(terms.expires_after)}")
    return Text("".join(f"  {line}\n" for line in lines))


def adoption_screen(adopting: Sequence[str], refused: Mapping[str, str], left: Sequence[str]) -> Text:
    """Return which runs adopt a policy, and which do not.

    Args:
        adopting: The threads that do.
        refused: The threads that do not, each with the reason.
        left: The threads that were not asked, because no worker answered for those before.
    """
    lines = [f"{count(len(adopting), 'run')} that waited adopt it, if a worker has it"]
    lines += [f"{visible(thread)}: {visible(why)}" for thread, why in refused.items()]
    if left:
        lines.append(f"{count(len(left), 'run')} left alone: no worker answers. Start one, and repeat the command")
    return Text("\n".join(lines))
