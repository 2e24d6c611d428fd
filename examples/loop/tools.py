"""The tool `run_tests` of the loop's agent, which runs the repository's tests."""

import shlex
import sys

from holdfast import ToolContext, tool
from holdfast.workspace.sandbox import DEFAULT, unavailable_reason
from holdfast.workspace.shell import run_shell

TEST_SECONDS = 120.0
"""Time limit of the repository's tests."""
TEST_COMMAND = (sys.executable, "-B", "-m", "unittest", "discover", "--verbose", "--top-level-directory", ".")
"""The test command. It exits with 0 only if there are tests and all of them pass (Python 3.12 and later)."""


@tool(effect="idempotent", timeout=TEST_SECONDS + 30, not_done_on=(Exception,))  # a new call does no harm
async def run_tests(context: ToolContext) -> str:
    """Run the repository's tests. The first line of the result says whether they passed.

    Args:
        context: Filled in by Holdfast.
    """
    # Tests run unreviewed code of the LLM, so they are confined if the machine supports it.
    confinement = DEFAULT if unavailable_reason(DEFAULT) is None else None
    command = f"{shlex.join(TEST_COMMAND)} 2>&1"
    outcome = await run_shell(command, context.workspace, seconds=TEST_SECONDS, confinement=confinement)
    if outcome.exit_code is None:
        return f"Tests FAILED: stopped after {TEST_SECONDS:g} s.\n\n{outcome.output}"
    if outcome.exit_code:
        return f"Tests FAILED (exit code {outcome.exit_code}).\n\n{outcome.output}"
    return f"Tests passed.\n\n{outcome.output}"
