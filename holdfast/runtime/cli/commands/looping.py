"""Commands on loops: start one, pause it, let it go on. `show`, `retry` and `cancel` take loops, too."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.runtime.cli.commands.options import By, Debug, Group, Json, Reason, examples

Loop = Annotated[str, typer.Argument(metavar="LOOP", help="The loop's id, as `list` shows it.")]


class Looping(Group):
    """Starts and steers loops."""

    @examples(
        'loop . --task "Everything in features.json works"',
        "loop ~/site --agent builder --iterations 20 --cost 5 --wait",
    )
    def loop(
        self,
        workspace: Annotated[Path, typer.Argument(metavar="DIR", help="A folder on the worker's machine.")],
        task: Annotated[
            str, typer.Option(metavar="TEXT", help="What all of it is for; needed where DIR has no TASKS.md.")
        ] = "",
        agent: Annotated[
            str | None, typer.Option(metavar="NAME", help="Who does the tasks. [default: the catalog's first]")
        ] = None,
        initializer: Annotated[
            str | None,
            typer.Option(metavar="NAME", help="Who writes a missing TASKS.md. [default: the same]"),
        ] = None,
        name: Annotated[str | None, typer.Option("--id", metavar="ID", help="[default: a fresh one]")] = None,
        iterations: Annotated[int, typer.Option(min=1, help="Then it is blocked; `retry` allows as many again.")] = 100,
        cost: Annotated[
            float | None, typer.Option(min=0.01, metavar="USD", help="The same for dollars, by list prices.")
        ] = None,
        hours: Annotated[float | None, typer.Option(min=0.001, help="The same for time since its start.")] = None,
        attempts: Annotated[int, typer.Option(min=1, help="The same for failures in a row at one task.")] = 3,
        by: By = None,
        wait: Annotated[
            bool, typer.Option("--wait", help="Stay until it is done, blocked or paused; exit 1 if it is not done.")
        ] = False,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Work off a folder's TASKS.md: one fresh agent run for each task, until all are done.

        People may edit the files at any time. Every step is a commit in the folder's git repository.
        """
        given = {
            "workspace": str(workspace.expanduser().absolute()),
            "task": task,
            "agent": agent,
            "initializer": initializer,
            "limits": {
                "iterations": iterations,
                "cost": cost,
                "seconds": hours * 3600 if hours else None,
                "attempts": attempts,
            },
        }
        self._carry_out(
            lambda verbs: verbs.loop(given, name=name, by=by, wait=wait),
            json=json,
            debug=debug,
            farewell="Not waiting any longer; the loop goes on.",
        )

    @examples('pause loop-3f09ac --reason "let me look"')
    def pause(self, loop: Loop, by: By = None, reason: Reason = "", json: Json = False, debug: Debug = False) -> None:
        """Have a loop begin no further iteration."""
        self._carry_out(lambda verbs: verbs.steer(loop, "pause", by=by, reason=reason), json=json, debug=debug)

    @examples("resume loop-3f09ac")
    def resume(self, loop: Loop, by: By = None, reason: Reason = "", json: Json = False, debug: Debug = False) -> None:
        """Let a paused loop go on; it obeys what it finds in the files."""
        self._carry_out(lambda verbs: verbs.steer(loop, "resume", by=by, reason=reason), json=json, debug=debug)
