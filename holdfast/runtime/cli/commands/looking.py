"""Commands that read threads, and change nothing; `watch` also takes decisions and messages."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.runtime.cli.commands.options import By, Debug, Group, Json, Key, Thread, examples


class Looking(Group):
    """Reads threads."""

    @examples("show rel-1.2", "show rel-1.2 --at 17", "show rel-1.2 --json | jq .status")
    def show(
        self,
        thread: Thread,
        at: Annotated[
            int | None, typer.Option(min=0, metavar="N", help="As it was right after the event at position N.")
        ] = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Show where a thread is, what it waits for, and its result."""
        self._carry_out(lambda verbs: verbs.show(thread, at=at), json=json, debug=debug)

    @examples("list", "list --status waiting_approval", name="list")
    def list_threads(
        self,
        status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only threads with this status.")] = None,
        limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """List threads, newest first.

        Statuses: running, waiting_approval, waiting_message, dormant, blocked, completed, failed, cancelled.
        """
        self._carry_out(lambda verbs: verbs.list(status=status, limit=limit), json=json, debug=debug)

    @examples("log rel-1.2", "log rel-1.2 --follow --json", "log rel-1.2 --after 40")
    def log(
        self,
        thread: Thread,
        follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
        after: Annotated[int, typer.Option(min=-1, metavar="N", help="Only events behind position N.")] = -1,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Print a thread's events, of all its runs."""
        self._carry_out(lambda verbs: verbs.log(thread, following=follow, after=after), json=json, debug=debug)

    @examples("transcript rel-1.2", "transcript rel-1.2 --active", "transcript rel-1.2 --json | jq -r .content")
    def transcript(
        self,
        thread: Thread,
        active: Annotated[
            bool, typer.Option("--active", help="Only what the LLM is sent now: since the last fold.")
        ] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Print a thread's messages, from the first one on."""
        self._carry_out(lambda verbs: verbs.transcript(thread, active=active), json=json, debug=debug)

    @examples("prompt rel-1.2", "prompt rel-1.2 --json | jq '.tiers[] | {tier, tokens}'", "prompt rel-1.2 --raw | jq .")
    def prompt(
        self,
        thread: Thread,
        raw: Annotated[bool, typer.Option("--raw", help="The request's body alone, byte for byte.")] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Show what the LLM would be sent next, tier by tier.

        Instructions, tools, skills, strategies, standing memory, files and the transcript, each with its size and its
        share of its budget; and what waits to come before it. Tokens are estimated, at four bytes a token.
        """
        self._carry_out(lambda verbs: verbs.prompt(thread, raw=raw), json=json, debug=debug)

    @examples("pending", "pending rel-1.2 --json")
    def pending(
        self,
        thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="[default: all threads]")] = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Print the requests that wait for a decision."""
        self._carry_out(lambda verbs: verbs.pending(thread), json=json, debug=debug)

    @examples("watch rel-1.2")
    def watch(self, thread: Thread, by: By = None, key: Key = None, json: Json = False, debug: Debug = False) -> None:
        """Watch a run live, and answer it.

        Its requests are decided and messages typed in place. Without a terminal, its log is followed.
        """
        live = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._carry_out(
            lambda verbs: verbs.watch(thread, by=by, key=key, live=live),
            json=json,
            debug=debug,
            interrupted=0,
            farewell="Left; the run goes on.",
        )

    @examples("verify rel-1.2", "verify rel-1.2 --keys people.yaml", "verify rel-1.2 --json | jq .unchecked")
    def verify(
        self,
        thread: Thread,
        keys: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", help="People, gateways and their keys, as a policy lists them: trust no others."
            ),
        ] = None,
        no_artifacts: Annotated[
            bool, typer.Option("--no-artifacts", help="Leave artifacts out: workers keep them in a store of their own.")
        ] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Check that a thread is what was recorded.

        Temporal's histories and the permanent record have the same events; each follows from those before it, verdicts,
        signatures and quorum included; the ledger and the artifacts agree with them. Exit 1 names the first fault. What
        could not be checked is said.
        """
        self._carry_out(
            lambda verbs: verbs.verify(thread, keys=keys, artifacts=not no_artifacts), json=json, debug=debug
        )
