"""Searches text files for a regular expression in a separate process: a pattern may take forever, and only a process
can be killed.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterable

from holdfast.workspace.beneath import by_walk

SEARCH_HITS = 200
"""The most hits that one search shows."""
SEARCH_SECONDS = 20.0
"""Time limit of one search."""


def search_lines(pattern: str, folder: int, *, files: Iterable[str]) -> str:
    """Search text files for a regular expression in a separate process, with a time limit.

    Args:
        pattern: Python's `re` syntax, matched within a line.
        folder: The descriptor of the workspace.
        files: Paths in it; anything but a regular text file, and any path through a link, is skipped.

    Returns:
        Lines `path:number: text`, and a note in brackets if something was left out. Empty if nothing matches.

    Raises:
        ValueError: The pattern is not a regular expression.
        RuntimeError: The search failed; the message says why.
    """
    if "\0" in pattern:
        raise ValueError("the pattern has a NUL character, which text files do not contain; leave it out")
    asked = b"\0".join([pattern.encode(), *(os.fsencode(name) for name in files)])
    # -I and -S: nothing from the workspace or site-packages is imported, and it starts in 20 ms.
    arguments = [sys.executable, "-I", "-S", "-c", _SEARCH_PROGRAM, str(SEARCH_HITS), str(folder)]
    try:
        done = subprocess.run(
            arguments,
            input=asked,
            capture_output=True,
            cwd="/",
            pass_fds=(folder,),
            env={},
            timeout=SEARCH_SECONDS,
            check=False,  # the exit code tells an invalid pattern from a failure
        )
    except subprocess.TimeoutExpired as late:
        hits = (late.stdout or b"").decode("utf-8", "replace")
        return f"{hits}[stopped after {SEARCH_SECONDS:g} s; search fewer files, or simplify the pattern]"
    if done.returncode:
        reason = (done.stderr.decode("utf-8", "replace").strip() or "it was killed").splitlines()[-1]
        if done.returncode == 2:
            raise ValueError(f"{pattern!r} is not a regular expression: {reason}")
        raise RuntimeError(f"the search failed: {reason}; search fewer files, or simplify the pattern")
    return done.stdout.decode("utf-8", "replace").removesuffix("\n")


def _search_program() -> None:
    """Run the search in its own process. Pattern and file names come on stdin, separated by NUL."""
    import os
    import re
    import resource
    import stat
    import sys
    from contextlib import suppress

    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # ends the search even if the worker has been killed
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    asked, *files = sys.stdin.buffer.read().split(b"\0")
    left, folder = int(sys.argv[1]), int(sys.argv[2])
    try:
        pattern = re.compile(asked.decode())
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        print(str(error) or "it is too large", file=sys.stderr)
        sys.exit(2)
    opened, at = "", os.dup(folder)
    for name in files:
        parent, _, last = os.fsdecode(name).rpartition("/")
        try:
            if parent != opened:  # files are sorted by folder
                below = by_walk(folder, parent or ".", os.O_RDONLY | os.O_DIRECTORY)
                os.close(at)
                opened, at = parent, below
            descriptor = os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW, dir_fd=at)
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or b"\0" in file.peek(8192)[:8192]:
                continue
            number, at_start = 0, True
            while piece := file.readline(10_000):
                number += at_start
                at_start = piece.endswith(b"\n")
                line = piece.rstrip(b"\r\n").decode("utf-8", "replace")
                if not (match := pattern.search(line)):
                    continue
                if not left:
                    print("[more lines match; narrow the pattern, the path or the glob]", flush=True)
                    return
                left -= 1
                start = max(0, match.start() - 100) if len(line) > 300 else 0
                before, after = "…" if start else "", "…" if len(line) > start + 300 else ""
                shown = before + line[start : start + 300] + after
                text = f"{os.fsdecode(name)}:{number}: {shown}\n"
                sys.stdout.buffer.write(text.encode("utf-8", "replace"))
                sys.stdout.buffer.flush()


_SEARCH_PROGRAM = f"import os\n{inspect.getsource(by_walk)}\n{inspect.getsource(_search_program)}\n_search_program()\n"
