"""`run_confined`, and which tools run commands on this machine.

`run_command` and `run_confined` have two names on purpose: a policy that lets the confined one run says nothing of the
other, and a worker that cannot confine has no tool of that name.
"""

import dataclasses
from typing import Literal

from holdfast.errors import CatalogError
from holdfast.runtime.workspace.sandbox import MB, Confinement, why_not
from holdfast.runtime.workspace.shell import (
    DEFAULT_SECONDS,
    LONGEST_SECONDS,
    TOOL_SECONDS,
    TimeLimit,
    run_command,
    run_shell,
    told,
)
from holdfast.tools.decorator import Tool, ToolContext, tool

Confine = Literal["auto", "require", "never"]
"""`auto`: `run_command`, and `run_confined` where it works. `require`: `run_confined`. `never`: `run_command`."""


def command_tools(confine: Confine, confinement: Confinement) -> list[Tool]:
    """The tools that run commands.

    Raises:
        CatalogError: With `require`, where commands cannot be confined; the message says why.
    """
    if confine == "never":
        return [run_command]
    reason = why_not(confinement)
    if reason is None:
        return [confined_tool(confinement), *([run_command] if confine == "auto" else [])]
    if confine == "require":
        raise CatalogError(
            f'workspace_tools(confine="require"): commands cannot be confined on this machine: {reason}. '
            "docs/operating.md says what it takes."
        )
    description = f"{run_command.spec.description}\nCommands cannot be confined on this machine: {reason}."
    return [dataclasses.replace(run_command, spec=run_command.spec.model_copy(update={"description": description}))]


def confined_tool(confinement: Confinement) -> Tool:
    """The tool `run_confined`; where commands cannot be confined, all its calls fail."""

    async def run_confined(command: str, timeout_seconds: TimeLimit = DEFAULT_SECONDS, *, context: ToolContext) -> str:
        seconds = min(timeout_seconds, LONGEST_SECONDS)
        outcome = await run_shell(command, context.workspace, seconds=seconds, confinement=confinement)
        too_many = f"[stopped: it had more than {confinement.processes:,} processes]\n" if outcome.too_many else ""
        return too_many + told(outcome, seconds)

    run_confined.__doc__ = _DESCRIPTION.format(
        processes=confinement.processes,
        memory=confinement.memory_bytes // MB,
        cpu=confinement.cpu_seconds,
        file=confinement.file_bytes // MB,
    )
    # It changes the workspace only, but may do so twice: after a crash, a person has to look.
    return tool(effect="unsafe", timeout=TOOL_SECONDS)(run_confined)


_DESCRIPTION = """Run a shell command that reaches the workspace only; returns its exit code and its output
(stdout and stderr merged).

It runs with /bin/sh, without a terminal and with an empty standard input.
Whatever it leaves in the background is stopped when it ends.
It is confined: no network. Outside the workspace it reads programs and libraries only, and writes to /tmp only,
which is empty at first and gone at the end.
Limits: {processes:,} processes; each has {memory:,} MB of memory, {cpu:,} s of CPU time and files of {file:,} MB.

Args:
    context: Filled in by Holdfast.
    command: The command line, such as `python -m pytest -q | tail -20`.
    timeout_seconds: The command and its children are killed after that many seconds.
"""
