"""Commands by which people decide: approve, deny, answer, reconcile; lend the right to, take it back; make a key."""

import json as jsonlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.runtime.cli.commands.options import By, Debug, Digest, Group, Json, Key, Reason, Request, Thread, examples


class Deciding(Group):
    """Decides what runs ask."""

    @examples(
        "approve rel-1.2 1",
        'approve rel-1.2 1 --by alice --reason "checked the notes" --key ~/.holdfast/alice.key',
        """approve rel-1.2 1 --edit '{"version": "1.2.1"}'""",
        "approve rel-1.2 1 --remember    # and the same call from now on, in this thread",
    )
    def approve(
        self,
        thread: Thread,
        request: Request,
        by: By = None,
        reason: Reason = "",
        edit: Annotated[
            str | None, typer.Option(metavar="JSON", help="Run with these arguments, in place of the LLM's.")
        ] = None,
        remember: Annotated[
            bool, typer.Option("--remember", help="Allow the same call from now on, in this thread.")
        ] = False,
        digest: Digest = None,
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Let a tool call run."""
        more: dict[str, Any] = {} if edit is None else {"arguments": _arguments(edit)}
        if remember:
            more["remember"] = True
        said = {"by": by, "reason": reason, "digest": digest}
        self._decide("approve", thread, request, said=said, key=key, json=json, debug=debug, **more)

    @examples('deny rel-1.2 1 --reason "not on a Friday"')
    def deny(
        self,
        thread: Thread,
        request: Request,
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Refuse a tool call; the agent is told, with the reason."""
        said = {"by": by, "reason": reason, "digest": digest}
        self._decide("deny", thread, request, said=said, key=key, json=json, debug=debug)

    @examples('respond rel-1.2 1 "It is published already, as 1.2.0"')
    def respond(
        self,
        thread: Thread,
        request: Request,
        text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agent is to read.")],
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Answer in a tool's place; the call does not run."""
        said = {"by": by, "reason": reason, "digest": digest}
        self._decide("respond", thread, request, said=said, key=key, json=json, debug=debug, result=text)

    @examples(
        'reconcile rel-1.2 2 --happened --result "published as 1.2"',
        "reconcile rel-1.2 2 --absent",
        "reconcile rel-1.2 2 --undo",
        'reconcile rel-1.2 2 --abandon --reason "the registry is gone"',
    )
    def reconcile(
        self,
        thread: Thread,
        request: Request,
        happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
        absent: Annotated[bool, typer.Option("--absent", help="It did not: run it now.")] = False,
        undo: Annotated[bool, typer.Option("--undo", help="Take back what it may have done.")] = False,
        abandon: Annotated[bool, typer.Option("--abandon", help="Nobody can tell: go on without it.")] = False,
        result: Annotated[
            str | None, typer.Option(metavar="TEXT", help="With --happened: what the call returned.")
        ] = None,
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Say whether a call happened whose outcome nobody recorded."""
        words = {"happened": happened, "absent": absent, "undo": undo, "abandon": abandon}
        given = [word for word, meant in words.items() if meant]
        if len(given) != 1:
            raise typer.BadParameter("say one of --happened, --absent, --undo and --abandon")
        if result is not None and not happened:
            raise typer.BadParameter("--result belongs to --happened")
        said = {"by": by, "reason": reason, "digest": digest}
        more = {} if result is None else {"result": result}
        self._decide(given[0], thread, request, said=said, key=key, json=json, debug=debug, **more)

    @examples(
        "delegate-authority rel-1.2 --to bob --for 1d",
        "delegate-authority rel-1.2 --to bob --for 4h --by alice --key alice.key",
    )
    def delegate_authority(
        self,
        thread: Thread,
        to: Annotated[str, typer.Option(metavar="NAME", help="Another approver.")],
        span: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90 (seconds), 15m, 4h or 7d.")],
        by: By = None,
        reason: Reason = "",
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Lend your right to decide to another approver, within a thread."""
        from holdfast.runtime.config.durations import read_seconds

        try:
            seconds = read_seconds(span)
        except ValueError as error:
            raise typer.BadParameter(f"--for: {error}") from None
        until = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        payload = {"by": by, "reason": reason, "to": to, "until": until}
        self._carry_out(lambda verbs: verbs.delegate_authority(thread, payload, key=key), json=json, debug=debug)

    @examples("revoke rel-1.2 --remembered 1", "revoke rel-1.2 --delegated-to bob --by alice")
    def revoke(
        self,
        thread: Thread,
        remembered: Annotated[
            str | None, typer.Option(metavar="ID", help="A remembered rule, as `show` lists it.")
        ] = None,
        delegated_to: Annotated[
            str | None, typer.Option(metavar="NAME", help="Whom you have lent your right to.")
        ] = None,
        by: By = None,
        reason: Reason = "",
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Take back a remembered rule, or a right that you have lent."""
        if (remembered is None) == (delegated_to is None):
            raise typer.BadParameter("say one of --remembered and --delegated-to")
        what = {"delegated_to": delegated_to} if remembered is None else {"remembered": remembered}
        payload = {"by": by, "reason": reason, **what}
        self._carry_out(lambda verbs: verbs.revoke(thread, payload, key=key), json=json, debug=debug)

    @examples("keygen --out ~/.holdfast/alice.key")
    def keygen(
        self,
        out: Annotated[Path, typer.Option(metavar="FILE", help="Where the private key goes.")] = Path("holdfast.key"),
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Make a key to sign decisions with; prints the public one, for the policy.

        The file is readable for you alone, and never overwritten.
        """
        self._carry_out(lambda verbs: verbs.keygen(out.expanduser().absolute()), json=json, debug=debug)

    def _decide(
        self,
        decision: str,
        thread: str,
        request: str,
        *,
        said: dict[str, str | None],
        key: Path | None,
        json: bool,
        debug: bool,
        **more: Any,
    ) -> None:
        payload = {"decision": decision, "request": request, **said, **more}
        self._carry_out(lambda verbs: verbs.decide(thread, payload, key=key), json=json, debug=debug)


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = jsonlib.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--edit is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise typer.BadParameter('--edit has to be an object with all arguments, such as {"version": "1.2.1"}')
    return given


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")
