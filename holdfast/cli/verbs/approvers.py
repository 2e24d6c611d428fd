"""Verbs for the keys of approvers in a policy file: approvers list, add and remove. They need no server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exits import OK
from holdfast.cli.options import Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import visible

verbs = Verbs(under="approvers", help="List the approvers of a policy file, and add or remove their keys.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The approver, as the policy names them.")]
PublicKey = Annotated[str, typer.Argument(metavar="KEY", help="The public key: ed25519:…")]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The policy file. [default: HOLDFAST_POLICY]")
]


@verbs.verb("approvers list --policy policy.yaml", name="list", local=True)
async def list_approvers(session: Session, policy: PolicyFile = None) -> int:
    """List the approvers with the fingerprints of their keys."""
    from rich.text import Text

    from holdfast.config.policy_file import load_policy
    from holdfast.core.authority.signatures import fingerprint

    for person in load_policy(_file(session, policy)).approvers:
        keys = [{"key": key, "fingerprint": fingerprint(key)} for key in person.keys]
        lines = [f"  {each['fingerprint']}  {each['key']}" for each in keys] or ["  no key"]
        roles = f" ({', '.join(person.roles)})" if person.roles else ""
        view = {"name": person.name, "roles": list(person.roles), "keys": keys}
        session.output.result(view, Text("\n".join([f"{person.name}{roles}", *lines])))
    return OK


@verbs.verb("approvers add alice ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg", local=True)
async def add(
    session: Session,
    name: Name,
    key: PublicKey,
    policy: PolicyFile = None,
    new: Annotated[bool, typer.Option("--new", help="Add the approver, too, who may then decide.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether the fingerprint is right.")] = False,
) -> int:
    """Add an approver's key to the policy file.

    Compare the fingerprint with the one that the person reads to you. Then restart the workers: runs that begin from
    then on accept the key.
    """
    from rich.text import Text

    from holdfast.config.policy_edits import add_key, checked_key
    from holdfast.core.authority.signatures import fingerprint

    file, shown = _file(session, policy), fingerprint(checked_key(key))
    if not yes and not _confirms(session, f"Does {visible(name)} read you the fingerprint {shown}? [y/N] "):
        session.output.note("Nothing was written.")
        return OK
    add_key(file, _name(name), key, new=new)
    view = {"name": _name(name), "key": key, "fingerprint": shown, "policy": str(file)}
    session.output.result(view, Text(f"{file} lists the key {shown} of {_name(name)}."))
    session.output.note("Restart the workers and the gateway: open runs keep the policy that they began with.")
    return OK


@verbs.verb("approvers remove alice ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg", local=True)
async def remove(session: Session, name: Name, key: PublicKey, policy: PolicyFile = None) -> int:
    """Remove an approver's key from the policy file.

    Open runs keep the policy that they began with: `revoke-key KEY --all` takes the key out of those.
    """
    from rich.text import Text

    from holdfast.config.policy_edits import remove_key
    from holdfast.config.programs import CLI

    file = _file(session, policy)
    remove_key(file, _name(name), key)
    view = {"name": _name(name), "removed": key, "policy": str(file)}
    session.output.result(view, Text(f"{file} no longer lists {visible(key)}."))
    session.output.note(f"Open runs still accept it: `{CLI.command('revoke-key', key, '--all')}` ends that.")
    return OK


def _file(session: Session, given: Path | None) -> Path:
    """Return the policy file."""
    named = session.environ.get("HOLDFAST_POLICY", "").strip()
    if given is None and not named:
        raise typer.BadParameter("name the policy file with --policy, or set HOLDFAST_POLICY")
    return (given or Path(named)).expanduser().absolute()


def _name(text: str) -> str:
    from holdfast.core.base.names import person_name

    try:
        return person_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _confirms(session: Session, question: str) -> bool:
    """Ask a person at a terminal.

    Raises:
        typer.BadParameter: Nobody is at one.
    """
    if session.output.as_json or sys.stdin is None or not sys.stdin.isatty():
        raise typer.BadParameter("nobody can confirm the fingerprint here: say --yes if you have compared it")
    return session.output.err.input(question, markup=False, emoji=False).strip().lower() in ("y", "yes")
