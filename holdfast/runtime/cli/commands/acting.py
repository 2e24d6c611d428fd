"""Commands that change something: start a run, say something to it, retry, cancel."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.runtime.cli.commands.options import (
    Blocks,
    By,
    Debug,
    Group,
    Json,
    Key,
    Reason,
    Thread,
    content,
    examples,
)


class Acting(Group):
    """Changes runs."""

    @examples(
        'start "Publish 1.2"',
        'start "Fix the failing test" --workspace . --wait',
        'start "And now 1.3" --thread rel-1.2    # a closed thread goes on, with all it knows',
        'start "Publish 1.2" --agent releaser --idle-limit 600 --json',
    )
    def start(
        self,
        task: Annotated[str | None, typer.Argument(metavar="TASK", help="What the agent is to do.")] = None,
        agent: Annotated[
            str | None, typer.Option(metavar="NAME", help="[default: the thread's, or the catalog's first]")
        ] = None,
        thread: Annotated[
            str | None,
            typer.Option(metavar="ID", help="A new thread's id, or that of a closed one. [default: a fresh one]"),
        ] = None,
        workspace: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder on the worker's machine.")] = None,
        idle_limit: Annotated[
            float | None,
            typer.Option(
                min=0,
                metavar="SECONDS",
                help="Stay open so long for follow-up messages (`say`). [default: what the agent says]",
            ),
        ] = None,
        blocks: Blocks = None,
        by: Annotated[
            str | None,
            typer.Option(metavar="NAME", help="Who gives the task: the person it is for. [default: HOLDFAST_BY]"),
        ] = None,
        wait: Annotated[
            bool, typer.Option("--wait", help="Stay until the run ends or waits for a message; exit 1 if it fails.")
        ] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Start a run, or continue a closed thread."""
        given = content(task, blocks)
        # The worker, which may be on another machine, says whether the folder is there.
        folder = str(workspace.expanduser().absolute()) if workspace else None
        self._carry_out(
            lambda verbs: verbs.start(
                given, agent=agent, thread=thread, workspace=folder, idle_limit=idle_limit, by=by, wait=wait
            ),
            json=json,
            debug=debug,
            farewell="Not waiting any longer; the run goes on.",
        )

    @examples(
        'say rel-1.2 "Also update the notes"',
        'say rel-1.2 "Stop, that is the wrong branch" --when-busy interrupt',
        "say rel-1.2 --content picture.json",
    )
    def say(
        self,
        thread: Thread,
        message: Annotated[str | None, typer.Argument(metavar="MESSAGE", help="What you have to say.")] = None,
        when_busy: Annotated[
            Literal["queue", "interrupt", "reject"],
            typer.Option(help="While it works: wait for the step's end, break the LLM call off, or turn away."),
        ] = "queue",
        by: By = None,
        blocks: Blocks = None,
        key: Key = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Say something to a run; a closed thread goes on with it."""
        given = content(message, blocks)
        self._carry_out(
            lambda verbs: verbs.say(thread, given, by=by, when_busy=when_busy, key=key), json=json, debug=debug
        )

    @examples('retry rel-1.2 --reason "new key"')
    def retry(
        self, thread: Thread, by: By = None, reason: Reason = "", json: Json = False, debug: Debug = False
    ) -> None:
        """Let a blocked run go on, after its cause is mended."""
        self._carry_out(lambda verbs: verbs.retry(thread, by=by, reason=reason), json=json, debug=debug)

    @examples("cancel rel-1.2")
    def cancel(self, thread: Thread, json: Json = False, debug: Debug = False) -> None:
        """Stop a run; tools under way are stopped and waited for."""
        self._carry_out(lambda verbs: verbs.cancel(thread), json=json, debug=debug)
