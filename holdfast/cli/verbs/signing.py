"""Verbs for people's signing keys: keygen, revoke-key."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exits import OK, REFUSED
from holdfast.cli.options import By, Key, Reason, Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import visible

verbs = Verbs()


@verbs.verb("keygen --out ~/.holdfast/alice.key", local=True)
async def keygen(
    session: Session,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new file for the private key.")] = Path("holdfast.key"),
) -> int:
    """Generate a key to sign decisions with.

    Prints the public key, for the policy. Only you can read the file, and it is never overwritten.
    """
    from rich.text import Text

    from holdfast.encryption.signing_keys import make_key

    path = out.expanduser().absolute()
    public = make_key(path)
    session.output.result({"public": public, "file": str(path)}, Text(f'keys: ["{public}"]'))
    session.output.note(
        f"The private key is in {visible(str(path))}, for you alone. The line goes under your name in the policy; "
        "sign with --key or HOLDFAST_KEY."
    )
    return OK


@verbs.verb(
    'revoke-key ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg rel-1.2 --key bob.key --reason "a lost laptop"',
    "revoke-key ed25519:PbIeLO-fxqj66fPSMYWy63Sy_izsb4xm0ZWk9t2zkqg --all --by bob --key bob.key",
    name="revoke-key",
)
async def revoke_key(
    session: Session,
    revoked: Annotated[str, typer.Argument(metavar="PUBLIC", help="The public key, as the policy lists it.")],
    threads_named: Annotated[list[str] | None, typer.Argument(metavar="[THREAD]...", help="The threads.")] = None,
    all_open: Annotated[bool, typer.Option("--all", help="All threads that are open.")] = False,
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Revoke a key in open runs, which keep the policy that they started with.

    Everything it signed lapses: open votes, remembered rules, delegations, approvals that no call has used. Any
    approver may revoke a key, even with that key itself. Remove it from the policy as well, for later runs.
    """
    if all_open is bool(threads_named):
        raise typer.BadParameter("name the threads, or say --all")
    if not (private := session.private_key(key)):
        raise typer.BadParameter("only a signed statement revokes a key: give --key, or set HOLDFAST_KEY")
    statement = {"revoked": revoked, "by": session.person(by), "reason": reason}
    threads = await session.connect(*(threads_named or ())[:1])
    from rich.text import Text

    from holdfast.client.interventions import intervene
    from holdfast.client.searching import open_threads

    refused = 0
    for thread in threads_named or await open_threads(threads):
        sent = await intervene(threads, thread, "revoke_key", statement, private=private)
        done = sent.counts or sent.outcome == "duplicate"
        refused += not done
        view: dict[str, Any] = {"thread": thread, "outcome": sent.outcome, "explanation": sent.explanation}
        line = f"{visible(thread)}: {'revoked' if done else sent.outcome}"
        session.output.result(view, Text(line + (f" ({visible(sent.explanation)})" if sent.explanation else "")))
    return REFUSED if refused else OK
