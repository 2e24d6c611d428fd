"""Where the CLI looks for a server: the project's files, the environment, and the embedded stacks of this user."""

from pathlib import Path

from holdfast.config.programs import WORKER
from holdfast.config.project import NAMING_A_SERVER, TOML, Project
from holdfast.config.running_stacks import RunningStack, is_running, running_stacks
from holdfast.config.stack_file import DEFAULT_ADDRESS, LOOPBACK, read_stack, record_fault
from holdfast.errors import ServerUnreachable


def stack_elsewhere(project: Project, home: Path) -> Path | None:
    """Return the state folder of the stack at the default address, where nothing says which server to use.

    The default address is `localhost:7233`. If the server there is a stack that this user runs in another folder, its
    fleet key and its database are in that folder's state folder.

    Args:
        project: What the program was given.
        home: Its state folder.
    """
    named = any(project.environ.get(name, "").strip() for name in (*NAMING_A_SERVER, "HOLDFAST_HOME"))
    if named or read_stack(home):
        return None
    return next((each.home for each in running_stacks() if _at_default(each)), None)


def belongs_elsewhere(project: Project, home: Path) -> ServerUnreachable:
    """The error for a project whose stack is not running, while that of another folder is at the default address."""
    return ServerUnreachable(
        f"the project in {project.root} has no running stack, and the server at {DEFAULT_ADDRESS} is that of {home}. "
        f"Start this project's with `{WORKER.command('--dev')}`, or set HOLDFAST_HOME={home}."
    )


def places(project: Project, home: Path) -> list[str]:
    """Return a line for each place that was looked at for a server, and for each stack that runs elsewhere."""
    lines = [f"address    from {_source(project, home)}"]
    lines += [f"settings   {line}" for line in project.listing()] or [f"settings   {Path.cwd() / TOML} is not there"]
    lines.append(f"stack      {_state(home)}")
    lines += [
        f"running    {each.stack.temporal_address}: HOLDFAST_HOME={each.home}"
        for each in running_stacks()
        if each.home != home
    ]
    return lines


def _source(project: Project, home: Path) -> str:
    if project.environ.get("TEMPORAL_ADDRESS", "").strip():
        return "TEMPORAL_ADDRESS"
    if read_stack(home):
        return str(home / "stack.json")
    return f"Temporal's configuration file, or else the default {DEFAULT_ADDRESS}; TEMPORAL_ADDRESS is not set"


def _state(home: Path) -> str:
    if fault := record_fault(home):
        return f"{home / 'stack.json'} does not count: {fault}"
    stack = read_stack(home)
    if stack is None:
        return f"{home} has none"
    if is_running(home, stack):
        return f"{home} has one"
    return f"{home} has one, which {'has died' if stack.temporal_pid else 'was stopped'}"


def _at_default(running: RunningStack) -> bool:
    host, _, port = running.stack.temporal_address.rpartition(":")
    return host in LOOPBACK and port == DEFAULT_ADDRESS.rpartition(":")[2]
