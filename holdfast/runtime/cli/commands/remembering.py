"""Commands for semantic memory: remember, recall, forget. They speak to the database, and need no worker."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.runtime.cli.commands.options import By, CarryOut, Debug, Group, Json, examples
from holdfast.runtime.config.durations import read_seconds

if TYPE_CHECKING:
    from holdfast.runtime.cli.verbs.remembering import OpenMemories

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="For agents that work for this person.")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="For this agent, in any thread.")]
InThread = Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="For this thread only.")]
Global = Annotated[bool, typer.Option("--global", help="For all agents.")]
Item = Annotated[str, typer.Argument(metavar="ID", help="As `recall` shows it.")]


class Remembering(Group):
    """Keeps what outlives a run.

    Args:
        carry_out: What each command does.
        memories: Opens the memories in the database, which nothing below `holdfast` may know.
    """

    def __init__(self, carry_out: CarryOut, *, memories: "OpenMemories") -> None:
        super().__init__(carry_out)
        self._memories = memories

    @examples(
        'remember "Releases go out on Tuesdays." --agent releaser',
        'remember "Prefers short answers." --user alice --standing',
        'remember "The staging server is down." --global --for 2d',
        'remember "Releases go out on Mondays." --agent releaser --supersedes m-7f3k2ab',
    )
    def remember(
        self,
        text: Annotated[str, typer.Argument(metavar="TEXT", help="One thing, in words that make sense alone.")],
        user: User = None,
        agent: Agent = None,
        thread: InThread = None,
        everybody: Global = False,
        standing: Annotated[bool, typer.Option("--standing", help="Tell the agent in each of its runs.")] = False,
        lasting: Annotated[
            str | None, typer.Option("--for", metavar="SPAN", help="Forget it after that: 4h, 30d.")
        ] = None,
        supersedes: Annotated[str, typer.Option(metavar="ID", help="In the place of this one.")] = "",
        by: By = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Remember something, as a person's word."""
        scopes = _scopes(user, agent, thread, everybody)
        if len(scopes) != 1:
            raise typer.BadParameter("say whose it is: one of --user, --agent, --thread and --global")
        try:
            seconds = None if lasting is None else read_seconds(lasting)
        except ValueError as error:
            raise typer.BadParameter(f"--for {error}") from None
        self._carry_out(
            lambda verbs: verbs.remember(
                self._memories, text, scopes[0], standing=standing, seconds=seconds, supersedes=supersedes, by=by
            ),
            json=json,
            debug=debug,
        )

    @examples(
        'recall "when do releases go out"',
        "recall --user alice",
        'recall "staging" --agent releaser --global --limit 3 --json',
        "recall --history m-7f3k2ab",
    )
    def recall(
        self,
        query: Annotated[
            str, typer.Argument(metavar="[QUERY]", help="In your own words; without it, the newest.")
        ] = "",
        user: User = None,
        agent: Agent = None,
        thread: InThread = None,
        everybody: Global = False,
        limit: Annotated[int, typer.Option(min=1, max=50, metavar="N", help="How many at the most.")] = 5,
        history: Annotated[
            str | None, typer.Option(metavar="ID", help="This item and all that it superseded, instead.")
        ] = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Find what is remembered: in these scopes, or in all."""
        if history is not None and query:
            raise typer.BadParameter("say QUERY or --history, not both")
        scopes = _scopes(user, agent, thread, everybody) or None
        if history is not None:
            self._carry_out(lambda verbs: verbs.history(self._memories, history, scopes), json=json, debug=debug)
        self._carry_out(lambda verbs: verbs.recall(self._memories, query, scopes, limit=limit), json=json, debug=debug)

    @examples('forget m-7f3k2ab --reason "she moved"')
    def forget(
        self,
        item: Item,
        reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in its place.")] = "",
        by: By = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Remove an item for good, and what it superseded.

        The events of the run that wrote it stay as they are.
        """
        self._carry_out(lambda verbs: verbs.forget(self._memories, item, reason=reason, by=by), json=json, debug=debug)


def _scopes(user: str | None, agent: str | None, thread: str | None, everybody: bool) -> list[str]:
    try:
        from holdfast.base.names import person_name  # here: it needs pydantic, which the help does without

        spelt = None if user is None else person_name(user)
    except ValueError as error:
        raise typer.BadParameter(f"--user: {error}") from None
    named = {"user": spelt, "agent": agent, "thread": thread}
    return [f"{kind}:{name}" for kind, name in named.items() if name is not None] + ["global"] * everybody
