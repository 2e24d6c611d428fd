"""Commands for whoever operates Holdfast: the replay gate, pruning, doctor."""

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.runtime.cli.commands.options import CarryOut, Debug, Group, Json, examples

if TYPE_CHECKING:
    from holdfast.runtime.cli.verbs import Verbs

_AGE = re.compile(r"(\d{1,5})([hdwy])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


class Upkeep(Group):
    """Keeps things in order.

    Args:
        carry_out: What each command does.
        workflows: Loads today's workflow classes, which nothing below `holdfast` may know.
    """

    def __init__(self, carry_out: CarryOut, *, workflows: Callable[[], Sequence[type]]) -> None:
        super().__init__(carry_out)
        self._workflows = workflows

    @examples("replay rel-1.2", "replay --last 50 --json", "replay --file history.json --strict")
    def replay(
        self,
        thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="All runs of a thread.")] = None,
        file: Annotated[
            list[Path] | None, typer.Option(metavar="FILE", help="A history as JSON; may be given again.")
        ] = None,
        last: Annotated[int | None, typer.Option(min=1, metavar="N", help="The N runs that began last.")] = None,
        strict: Annotated[bool, typer.Option("--strict", help="Also find clocks and randomness; slower.")] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Replay runs through today's code.

        Exit 1 if one diverges.
        """
        if (thread is not None) + bool(file) + (last is not None) != 1:
            raise typer.BadParameter("say one of THREAD, --file and --last")

        def replayed(verbs: "Verbs") -> Awaitable[int]:
            return verbs.replay(self._workflows(), thread=thread, files=file or (), last=last or 0, strict=strict)

        self._carry_out(replayed, json=json, debug=debug)

    @examples("prune --older-than 90d --dry-run", "prune --older-than 1y", "prune --older-than 90d --yes --json")
    def prune(
        self,
        older_than: Annotated[
            str, typer.Option(metavar="AGE", help="How long ago a thread must have ended: 48h, 30d, 8w or 1y.")
        ],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Remove old threads from the record.

        Threads that ended so long ago leave the permanent record for good: events, effects, artifacts. One of which a
        run is open stays.
        """
        found = _AGE.fullmatch(older_than.strip())
        if not found:
            raise typer.BadParameter(f"--older-than {older_than!r} is no age; write it as 48h, 30d, 8w or 1y")
        age = timedelta(hours=int(found[1]) * _HOURS[found[2]])
        asking = not json and sys.stdin is not None and sys.stdin.isatty()
        if not (yes or dry_run or asking):
            raise typer.BadParameter("nobody can be asked here: give --yes to remove them, or --dry-run to list them")
        self._carry_out(lambda verbs: verbs.prune(age, dry_run=dry_run, ask=not yes), json=json, debug=debug)

    @examples("doctor", "doctor --hardened")
    def doctor(
        self,
        hardened: Annotated[
            bool, typer.Option("--hardened", help="Fail where something is below the hardening profile.")
        ] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Check what Holdfast needs here, and the hardening profile (docs/security.md)."""
        self._carry_out(lambda verbs: verbs.doctor(hardened=hardened), json=json, debug=debug)
