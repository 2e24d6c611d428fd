"""Commands that change something: start a run, say something to it, decide, retry, cancel."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.runtime.cli.commands.options import (
    Blocks,
    By,
    Debug,
    Digest,
    Group,
    Json,
    Reason,
    Request,
    Thread,
    content,
    examples,
    login,
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
                given, agent=agent, thread=thread, workspace=folder, idle_limit=idle_limit, wait=wait
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
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Say something to a run; a closed thread goes on with it."""
        given = content(message, blocks)
        self._carry_out(
            lambda verbs: verbs.say(thread, given, by=by or login(), when_busy=when_busy), json=json, debug=debug
        )

    @examples("approve rel-1.2 1", 'approve rel-1.2 1 --by alice --reason "checked the notes"')
    def approve(
        self,
        thread: Thread,
        request: Request,
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Let a tool call run."""
        self._decide("approve", thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug)

    @examples('deny rel-1.2 1 --reason "not on a Friday"')
    def deny(
        self,
        thread: Thread,
        request: Request,
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Refuse a tool call; the agent is told, with the reason."""
        self._decide("deny", thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug)

    @examples(
        'reconcile rel-1.2 2 --happened --result "published as 1.2"',
        "reconcile rel-1.2 2 --absent",
        'reconcile rel-1.2 2 --abandon --reason "the registry is gone"',
    )
    def reconcile(
        self,
        thread: Thread,
        request: Request,
        happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
        absent: Annotated[bool, typer.Option("--absent", help="It did not: run it now.")] = False,
        abandon: Annotated[bool, typer.Option("--abandon", help="Nobody can tell: go on without it.")] = False,
        result: Annotated[
            str | None, typer.Option(metavar="TEXT", help="With --happened: what the call returned.")
        ] = None,
        by: By = None,
        reason: Reason = "",
        digest: Digest = None,
        json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Say whether a call happened whose outcome nobody recorded."""
        given = [word for word, said in (("happened", happened), ("absent", absent), ("abandon", abandon)) if said]
        if len(given) != 1:
            raise typer.BadParameter("say one of --happened, --absent and --abandon")
        if result is not None and not happened:
            raise typer.BadParameter("--result belongs to --happened")
        more = {} if result is None else {"result": result}
        self._decide(given[0], thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug, **more)

    @examples('retry rel-1.2 --reason "new key"')
    def retry(
        self, thread: Thread, by: By = None, reason: Reason = "", json: Json = False, debug: Debug = False
    ) -> None:
        """Let a blocked run go on, after its cause is mended."""
        self._carry_out(lambda verbs: verbs.retry(thread, by=by or login(), reason=reason), json=json, debug=debug)

    @examples("cancel rel-1.2")
    def cancel(self, thread: Thread, json: Json = False, debug: Debug = False) -> None:
        """Stop a run; tools under way are stopped and waited for."""
        self._carry_out(lambda verbs: verbs.cancel(thread), json=json, debug=debug)

    def _decide(
        self,
        decision: str,
        thread: str,
        request: str,
        *,
        by: str | None,
        reason: str,
        digest: str | None,
        json: bool,
        debug: bool,
        **more: str,
    ) -> None:
        payload = {"decision": decision, "request": request, "by": by or login(), "reason": reason, **more}
        if digest is not None:
            payload["digest"] = digest
        self._carry_out(lambda verbs: verbs.decide(thread, payload), json=json, debug=debug)
