"""The tool `run_confined`, and the choice of the tools that run commands on this machine.

`run_command` and `run_confined` have different names on purpose: a policy that allows `run_confined` does not allow
`run_command`, and a worker that cannot confine commands does not offer `run_confined`.
"""

import dataclasses
from typing import Literal

from holdfast.core.tools.decorator import Tool, ToolContext, tool
from holdfast.errors import CatalogError
from holdfast.workspace.sandbox import MB, Confinement, unavailable_reason
from holdfast.workspace.shell import (
    BEFORE_START,
    DEFAULT_SECONDS,
    LONGEST_SECONDS,
    TOOL_SECONDS,
    TimeLimit,
    outcome_text,
    run_command,
    run_shell,
)

Confine = Literal["auto", "require", "never"]
"""`auto`: `run_command`, and `run_confined` if it works. `require`: `run_confined`. `never`: `run_command`."""


def command_tools(confine: Confine, confinement: Confinement) -> list[Tool]:
    """Return the tools that run commands.

    Raises:
        CatalogError: `confine` is `require`, and this machine cannot confine commands; the message says why.
    """
    if confine == "never":
        return [run_command]
    reason = unavailable_reason(confinement)
    if reason is None:
        return [confined_tool(confinement), *([run_command] if confine == "auto" else [])]
    if confine == "require":
        raise CatalogError(
            f'workspace_tools(confine="require"): commands cannot be confined on this machine: {reason}. '
            "docs/how-to/work-with-files.md lists the requirements."
        )
    description = f"{run_command.spec.description}\nCommands cannot be confined on this machine: {reason}."
    return [dataclasses.replace(run_command, spec=run_command.spec.model_copy(update={"description": description}))]


def confined_tool(confinement: Confinement) -> Tool:
    """Build the tool `run_confined`. If this machine cannot confine commands, all its calls fail."""

    async def run_confined(command: str, timeout_seconds: TimeLimit = DEFAULT_SECONDS, *, context: ToolContext) -> str:
        seconds = min(timeout_seconds, LONGEST_SECONDS)
        outcome = await run_shell(command, context.workspace, seconds=seconds, confinement=confinement)
        too_many = f"[stopped: it had more than {confinement.processes:,} processes]\n" if outcome.too_many else ""
        return too_many + outcome_text(outcome, seconds)

    run_confined.__doc__ = _DESCRIPTION.format(
        processes=confinement.processes,
        memory=confinement.memory_bytes // MB,
        cpu=confinement.cpu_seconds,
        file=confinement.file_bytes // MB,
    )
    # It changes only the workspace, but a retry may do so twice: after a crash, a person has to check.
    return tool(effect="unsafe", timeout=TOOL_SECONDS, not_done_on=BEFORE_START)(run_confined)


_DESCRIPTION = """Run a shell command that reaches the workspace only; returns its exit code and its output
(stdout and stderr merged).

It runs with /bin/sh, without a terminal and with an empty standard input.
Processes that it leaves in the background are stopped when it ends.
It is confined: it has no network. Outside the workspace it can read only programs and libraries, and write only to
/tmp, which is empty at first and deleted at the end.
Limits: {processes:,} processes; each has {memory:,} MB of memory, {cpu:,} s of CPU time and files of {file:,} MB.

Args:
    context: Filled in by Holdfast.
    command: The command line, such as `python -m pytest -q | tail -20`.
    timeout_seconds: The command and its children are killed after this many seconds.
"""
