"""The sources of a server's address: the project's files, the environment, and this user's embedded stacks."""

from pathlib import Path

from holdfast.config.programs import WORKER
from holdfast.config.project import NAMING_A_SERVER, TOML, Project
from holdfast.config.running_stacks import RunningStack, is_running, running_stacks
from holdfast.config.stack_file import DEFAULT_ADDRESS, LOOPBACK, read_stack, record_fault
from holdfast.errors import ServerUnreachable


def stack_of_other_folder(project: Project, home: Path) -> Path | None:
    """Return the state folder of the stack at the default address, if nothing configures a server.

    The default address is `localhost:7233`. If this user runs a stack there in another folder, its fleet key and its
    database are in that folder's state folder.

    Args:
        project: The project's files and environment.
        home: The project's state folder.
    """
    configured = any(project.environ.get(name, "").strip() for name in (*NAMING_A_SERVER, "HOLDFAST_HOME"))
    if configured or read_stack(home):
        return None
    return next((each.home for each in running_stacks() if _at_default(each)), None)


def other_stack_error(project: Project, home: Path) -> ServerUnreachable:
    """Return the error for a project without a running stack while another folder's is at the default address."""
    return ServerUnreachable(
        f"the project in {project.root} has no running stack, and the server at {DEFAULT_ADDRESS} is that of {home}. "
        f"Start this project's with `{WORKER.command('--dev')}`, or set HOLDFAST_HOME={home}."
    )


def searched_sources(project: Project, home: Path) -> list[str]:
    """Return a line for each source that was searched for a server, and for each stack that runs elsewhere."""
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
