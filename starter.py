"""The command line: start agent runs, look at them, decide what they ask. `python starter.py --help`.

One small function per verb; `holdfast.runtime.cli` does the work, imported only when a verb needs it.
Exit codes: 0 ok · 1 the run failed · 2 usage · 3 not found · 4 no server or no worker · 5 refused.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from holdfast.runtime.cli.verbs import Verbs

ROOT = Path(__file__).resolve().parent


def _examples(*commands: str) -> str:
    """Examples for the end of a verb's help; the first character keeps the lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  python starter.py {command}" for command in commands)


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help and plain errors: they need no imports, and read well in a pipe
    context_settings={"help_option_names": ["--help", "-h"]},
    help="""Start agent runs, look at them, and decide what they ask.

    \b
    Examples:
      python starter.py start "Publish 1.2"
      python starter.py watch run-3f09ac
      python starter.py approve run-3f09ac 1

    \b
    Exit codes:
      0 ok · 1 the run failed or was cancelled · 2 usage · 3 not found
      4 no server, or no worker · 5 refused
    """,
)

Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, as `list` shows it.")]
Request = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's number, as `pending` shows it.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides. [default: your login name]")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; recorded, and told to the agent.")]
Digest = Annotated[str | None, typer.Option(metavar="HEX", help="Count only if the request has this digest.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout: one object, or one a line.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command(
    epilog=_examples(
        'start "Publish 1.2"',
        'start "Fix the failing test" --workspace . --wait',
        'start "Publish 1.2" --agent releaser --thread rel-1.2 --json',
    )
)
def start(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the agent is to do.")],
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="[default: the catalog's first]")] = None,
    thread: Annotated[
        str | None, typer.Option(metavar="ID", help="The new thread's id. [default: a fresh one]")
    ] = None,
    workspace: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder on the worker's machine.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the run ends; exit 1 if it fails.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a run."""
    # The worker, which may be on another machine, says whether the folder is there.
    folder = str(workspace.expanduser().absolute()) if workspace else None
    _carry_out(
        lambda verbs: verbs.start(task, agent=agent, thread=thread, workspace=folder, wait=wait),
        json=json,
        debug=debug,
        farewell="Not waiting any longer; the run goes on.",
    )


@app.command(epilog=_examples("show rel-1.2", "show rel-1.2 --json | jq .status"))
def show(thread: Thread, json: Json = False, debug: Debug = False) -> None:
    """Show where a thread is, what it waits for, and its result."""
    _carry_out(lambda verbs: verbs.show(thread), json=json, debug=debug)


@app.command("list", epilog=_examples("list", "list --status waiting_approval"))
def list_threads(
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only threads with this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List threads, newest first.

    Statuses: running, waiting_approval, waiting_message, dormant, blocked, completed, failed, cancelled.
    """
    _carry_out(lambda verbs: verbs.list(status=status, limit=limit), json=json, debug=debug)


@app.command(epilog=_examples("log rel-1.2", "log rel-1.2 --follow --json", "log rel-1.2 --after 40"))
def log(
    thread: Thread,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    after: Annotated[int, typer.Option(min=-1, metavar="N", help="Only events behind position N.")] = -1,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print a thread's events."""
    _carry_out(lambda verbs: verbs.log(thread, following=follow, after=after), json=json, debug=debug)


@app.command(epilog=_examples("transcript rel-1.2", "transcript rel-1.2 --json | jq -r .content"))
def transcript(thread: Thread, json: Json = False, debug: Debug = False) -> None:
    """Print the messages that the LLM is sent."""
    _carry_out(lambda verbs: verbs.transcript(thread), json=json, debug=debug)


@app.command(epilog=_examples("pending", "pending rel-1.2 --json"))
def pending(
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="[default: all threads]")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the requests that wait for a decision."""
    _carry_out(lambda verbs: verbs.pending(thread), json=json, debug=debug)


@app.command(epilog=_examples("approve rel-1.2 1", 'approve rel-1.2 1 --by alice --reason "checked the notes"'))
def approve(
    thread: Thread,
    request: Request,
    by: By = None,
    reason: Reason = "",
    digest: Digest = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a tool call run."""
    _decide("approve", thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug)


@app.command(epilog=_examples('deny rel-1.2 1 --reason "not on a Friday"'))
def deny(
    thread: Thread,
    request: Request,
    by: By = None,
    reason: Reason = "",
    digest: Digest = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Refuse a tool call; the agent is told, with the reason."""
    _decide("deny", thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug)


@app.command(
    epilog=_examples(
        'reconcile rel-1.2 2 --happened --result "published as 1.2"',
        "reconcile rel-1.2 2 --absent",
        'reconcile rel-1.2 2 --abandon --reason "the registry is gone"',
    )
)
def reconcile(
    thread: Thread,
    request: Request,
    happened: Annotated[bool, typer.Option("--happened", help="The call took effect.")] = False,
    absent: Annotated[bool, typer.Option("--absent", help="It did not: run it now.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Nobody can tell: go on without it.")] = False,
    result: Annotated[str | None, typer.Option(metavar="TEXT", help="With --happened: what the call returned.")] = None,
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
    _decide(given[0], thread, request, by=by, reason=reason, digest=digest, json=json, debug=debug, **more)


@app.command(epilog=_examples('retry rel-1.2 --reason "new key"'))
def retry(thread: Thread, by: By = None, reason: Reason = "", json: Json = False, debug: Debug = False) -> None:
    """Let a blocked run go on, after its cause is mended."""
    _carry_out(lambda verbs: verbs.retry(thread, by=by or _login(), reason=reason), json=json, debug=debug)


@app.command(epilog=_examples("cancel rel-1.2"))
def cancel(thread: Thread, json: Json = False, debug: Debug = False) -> None:
    """Stop a run; tools under way are stopped and waited for."""
    _carry_out(lambda verbs: verbs.cancel(thread), json=json, debug=debug)


@app.command(epilog=_examples("watch rel-1.2"))
def watch(thread: Thread, by: By = None, json: Json = False, debug: Debug = False) -> None:
    """Watch a run live and answer its requests in place; without a terminal, follow its log."""
    live = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    _carry_out(
        lambda verbs: verbs.watch(thread, by=by or _login(), live=live),
        json=json,
        debug=debug,
        interrupted=0,
        farewell="Left; the run goes on.",
    )


@app.command(epilog=_examples("doctor"))
def doctor(json: Json = False, debug: Debug = False) -> None:
    """Check what Holdfast needs here, and say how to mend what is missing."""
    _carry_out(lambda verbs: verbs.doctor(), json=json, debug=debug)


def _decide(
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
    payload = {"decision": decision, "request": request, "by": by or _login(), "reason": reason, **more}
    if digest is not None:
        payload["digest"] = digest
    _carry_out(lambda verbs: verbs.decide(thread, payload), json=json, debug=debug)


def _carry_out(verb: Callable[["Verbs"], Awaitable[int]], *, json: bool, debug: bool, **options: Any) -> NoReturn:
    from holdfast.runtime.cli.main import carry_out

    raise typer.Exit(carry_out(verb, root=ROOT, as_json=json, debug=debug, **options))


def _login() -> str:
    """The login name, which is recorded as who decided."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "unknown"


def main() -> NoReturn:
    """Run the command line and end the process with the verb's exit code, whatever happens."""
    code = 1
    try:
        for word in sys.argv[1:]:
            word.encode()  # what is not UTF-8 can be neither sent nor recorded
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except UnicodeEncodeError:
        print("starter.py: an argument is not valid UTF-8; check the terminal's encoding", file=sys.stderr)
        code = 2
    except BaseException as error:
        print(f"starter.py: {type(error).__name__}: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, and an exit code must not lie


if __name__ == "__main__":
    main()
