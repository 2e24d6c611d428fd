"""Verbs for policies: policy check and policy explain, which need no server, and policy adopt."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.exits import FAILED, OK, USAGE
from holdfast.cli.options import By, Key, Reason, Verbs
from holdfast.cli.reports import report_outcome
from holdfast.cli.session import Session
from holdfast.cli.text import visible

if TYPE_CHECKING:
    from holdfast.core.authority.policy import Policy

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy, as YAML or JSON.")]

verbs = Verbs(under="policy", help="Check a policy file, explain its verdict on a call, or have open runs adopt it.")


@verbs.verb(
    "policy check policy.yaml",
    "policy check policy.yaml --catalog mycompany.agents:catalog",
    "policy check policy.yaml --json | jq -r .hash",
    local=True,
)
async def check(
    session: Session,
    file: File,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="MODULE:ATTRIBUTE", help="Import this catalog, and name rules that match nothing in it."),
    ] = None,
) -> int:
    """Check a policy file.

    Exit 2 with every problem, its line and its field.
    """
    policy = _load(session, file)
    if policy is None:
        return USAGE
    from holdfast.cli.screens.policy_screens import policy_screen

    name = catalog or session.environ.get("HOLDFAST_CATALOG", "").strip()
    warnings = _compare(policy, name) if name else None
    result = {"ok": True, "hash": policy.hash, "rules": len(policy.rules), "signatures": policy.signatures}
    result |= {"approvers": [person.name for person in policy.approvers]}
    result |= {"gateways": [gateway.name for gateway in policy.gateways]}
    result |= {"signers": [signer.name for signer in policy.signers]}
    result |= {"catalog": name or None, "warnings": warnings or []}
    session.output.result(result, policy_screen(file, policy, warnings))
    return OK


def _compare(policy: "Policy", name: str) -> list[str]:
    """Return a sentence for each rule that matches nothing in a catalog."""
    from holdfast.config.loading import load
    from holdfast.core.agents.advice import unmatched
    from holdfast.core.agents.catalog import Catalog
    from holdfast.mcp.pinning import with_pinned_tools

    catalog = with_pinned_tools(load(name, Catalog), Path.cwd(), require=False)
    return [f"rules[{number}] ({rule.label}) {why}" for number, rule, why in unmatched(policy, catalog)]


@verbs.verb(
    """policy explain policy.yaml --tool pay --arguments '{"cents": 250000}'""",
    "policy explain policy.yaml --tool read_file --effect read --agent releaser --depth 1",
    local=True,
)
async def explain(
    session: Session,
    file: File,
    tool: Annotated[str, typer.Option(metavar="NAME", help="The tool that is called.")],
    arguments: Annotated[str, typer.Option(metavar="JSON", help="The arguments of the call.")] = "{}",
    effect: Annotated[
        Literal["read", "idempotent", "verifiable", "unsafe"], typer.Option(help="The tool's class of effect.")
    ] = "unsafe",
    agent: Annotated[str, typer.Option(metavar="NAME", help="The agent that calls it.")] = "",
    depth: Annotated[int, typer.Option(min=0, help="How many agents are above it.")] = 0,
    workspace: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.")] = "",
) -> int:
    """Show which rule applies to a call, why, and who may decide."""
    from pydantic_core import from_json

    try:
        parsed = from_json(arguments, allow_inf_nan=False)
    except ValueError as error:
        raise typer.BadParameter(f"--arguments is not JSON: {error}") from None
    policy = _load(session, file)
    if policy is None:
        return USAGE
    from holdfast.cli.screens.policy_screens import explanation_screen
    from holdfast.core.authority.explain import explain as explain_use
    from holdfast.core.authority.policy import ToolUse
    from holdfast.core.tools.effects import Effect

    use = ToolUse(tool=tool, effect=Effect(effect), arguments=parsed, agent=agent, depth=depth, workspace=workspace)
    explanation = explain_use(policy, use)
    session.output.result({**explanation.view(), "hash": policy.hash}, explanation_screen(explanation))
    return OK


@verbs.verb(
    'policy adopt policy.yaml rel-1.2 --reason "deploys on Sundays, too"',
    "policy adopt policy.yaml --waiting",
)
async def adopt(
    session: Session,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="The workers' policy file, or a policy's digest.")],
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="The thread.", show_default=False)] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="All runs that wait for hours of a policy, or for another policy.")
    ] = False,
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Have open runs adopt the policy of the workers, and judge their waiting calls again.

    The workers have to be started with it before. A run keeps its policy if none of them has it. What people have
    denied stays denied, and what they were asked about, or approved, asks them again.
    """
    if bool(thread) is waiting:
        raise typer.BadParameter("name a thread, or give --waiting")
    digest = policy
    if not re.fullmatch("[0-9a-f]{64}", policy):
        loaded = _load(session, Path(policy))
        if loaded is None:
            return USAGE
        digest = loaded.hash
    name, private = session.person(by), session.private_key(key)
    threads = await session.connect(*([thread] if thread else []))
    from holdfast.client.adopting import adopt_policy, adopt_where_waiting

    if thread:
        sent = await adopt_policy(threads, thread, digest, by=name, reason=reason, private=private)
        return report_outcome(session, thread, sent)
    from holdfast.cli.screens.policy_screens import adoption_screen

    with session.output.err.status("Looking for runs that wait for hours or for another policy"):
        done = await adopt_where_waiting(threads, digest, by=name, reason=reason, private=private)
    refused = {each: str(error) for each, error in done.failed.items()}
    takes = {each: answer.counts or answer.outcome == "duplicate" for each, answer in done.answers.items()}
    refused |= {each: answer.explanation for each, answer in done.answers.items() if not takes[each]}
    adopting = sorted(each for each, taken in takes.items() if taken)
    result = {"policy": digest, "adopting": adopting, "refused": refused, "left": list(done.left)}
    session.output.result(result, adoption_screen(adopting, refused, done.left))
    return FAILED if refused or done.left else OK


def _load(session: Session, file: Path) -> "Policy | None":
    """Return the policy in a file; if it is invalid, print its problems and return None."""
    from holdfast.config.policy_file import load_policy
    from holdfast.errors import PolicyError

    try:
        return load_policy(file)
    except PolicyError as error:
        session.output.note(visible(str(error)))
        session.output.result({"ok": False, "problems": [problem._asdict() for problem in error.problems]})
        return None
