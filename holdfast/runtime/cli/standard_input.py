"""Text that is piped into a verb: `-` in place of a task or a message."""

import sys

import typer


def read_stdin(limit: int) -> str:
    """Return what is piped into this process, without line ends at its end.

    Args:
        limit: The most bytes to read.

    Raises:
        typer.BadParameter: Stdin is a terminal or closed, or has nothing, too much, or what is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise typer.BadParameter("- reads standard input, and nothing is piped into it: … - < task.md")
    try:
        given = sys.stdin.buffer.read(limit + 1)
        text = given.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"standard input cannot be read as UTF-8: {error}") from None
    if len(given) > limit:
        raise typer.BadParameter(f"standard input has more than {limit:,} bytes: put it into a file in the workspace")
    if not text.strip():
        raise typer.BadParameter("standard input is empty")
    return text
