"""`worker --dev --reload`: a parent that owns the embedded servers, and a worker that it restarts when a file changes.

1. The parent never imports the project: a broken file ends the worker, and the parent waits for the next change.
2. The servers stay up across restarts, so open runs resume as after any other restart of a worker.
3. A change while a worker starts triggers the next restart: the files are listed before the start.
"""

import asyncio
import importlib.util
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from holdfast.composition.process import say
from holdfast.config.project import ENV, TOML
from holdfast.config.settings import Settings
from holdfast.core.base.text import visible
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.supervisor import restart_dead_servers
from holdfast.worker.process import until_stopped

OPTION = "--reload"

_SUFFIXES: Final = (".py", ".toml", ".yaml", ".yml")
_NOT_SOURCE: Final = {"__pycache__", "node_modules", "site-packages", "venv"}
_SECONDS: Final = 0.5
"""Between two checks of the files."""
_STOP_SECONDS: Final = 30.0
"""How long a worker may take to stop; its own limit for running tools is shorter."""

FileStates = Mapping[Path, tuple[int, int]]
"""Time and size of each file."""


async def run_reloading(settings: Settings, environ: Mapping[str, str], *, skip_time: bool) -> None:
    """Run a worker and the embedded servers until SIGINT or SIGTERM; restart the worker when a file changes.

    Args:
        settings: From `environ`.
        environ: The environment, completed by the project's files; the worker reads both again.
        skip_time: The stack's Temporal lets its clients skip time.

    Raises:
        HoldfastError: The servers cannot run; the message says what to do.
    """
    async with AsyncExitStack() as cleanup:
        servers = DevStack(settings.home, report=say, skip_time=skip_time)
        stack = await asyncio.to_thread(servers.start)
        cleanup.push_async_callback(asyncio.to_thread, servers.stop)
        stopped = asyncio.create_task(until_stopped())
        failed = asyncio.create_task(restart_dead_servers(servers, stack, report=say))
        ends = {stopped, failed}
        for end in ends:
            cleanup.callback(end.cancel)
        roots = source_roots(settings, Path.cwd())
        say(f"Reload     on changes in {', '.join(map(str, roots))}")
        while not any(end.done() for end in ends):
            seen = await asyncio.to_thread(list_files, roots, settings.home)
            worker = await asyncio.create_subprocess_exec(*_command(), env=_environ())
            try:
                change = asyncio.create_task(_change(seen, roots, settings.home))
                ended = asyncio.create_task(worker.wait())
                await asyncio.wait({*ends, change, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done() and not any(end.done() for end in ends):
                    say(f"Reload     the worker has ended ({worker.returncode}); it starts again after a change")
                    await asyncio.wait({*ends, change}, return_when=asyncio.FIRST_COMPLETED)
                if change.done():
                    say(f"Reload     {visible(str(change.result()))} has changed")
                change.cancel()
            finally:
                await _stop(worker)
        for end in ends:
            if end.done():
                end.result()  # raises its error


def source_roots(settings: Settings, folder: Path) -> list[Path]:
    """Return the folders and files to watch: the project's, the catalog's and the script's, and the policy.

    Args:
        settings: Name the catalog, the script and the policy.
        folder: The current folder, from which modules are also imported.
    """
    roots = [folder] if (folder / TOML).exists() else []
    for reference in filter(None, (settings.catalog, settings.script)):
        roots.append(_root_of(reference.partition(":")[0].partition(".")[0], folder))
    roots += [settings.policy] if settings.policy else []
    unique = dict.fromkeys(roots)
    return [root for root in unique if not any(other in root.parents for other in unique)]


def list_files(roots: Sequence[Path], home: Path) -> FileStates:
    """Return the files to watch, with their times and sizes.

    Args:
        roots: The folders, and single files.
        home: The state folder, where agents write: excluded.
    """
    seen = {}
    for root in roots:
        for path in _files(root, home) if root.is_dir() else [root]:
            with suppress(OSError):  # it has been removed
                state = path.stat()
                seen[path] = state.st_mtime_ns, state.st_size
    return seen


def _files(root: Path, home: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if name[0] != "." and name not in _NOT_SOURCE and here / name != home]
        yield from (here / name for name in names if name == ENV or name.endswith(_SUFFIXES))


async def _change(seen: FileStates, roots: Sequence[Path], home: Path) -> Path:
    """Wait until a file differs from its state in `seen`, and return it."""
    while True:
        await asyncio.sleep(_SECONDS)
        now = await asyncio.to_thread(list_files, roots, home)
        if changed := [path for path in {**seen, **now} if seen.get(path) != now.get(path)]:
            return changed[0]


def _root_of(module: str, folder: Path) -> Path:
    """Return the folder of a package, or the file of a module, without importing it; the current folder if unknown."""
    if (folder / module).is_dir():
        return folder / module
    if (folder / f"{module}.py").exists():
        return folder
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
        if spec and spec.origin:
            return Path(spec.origin)
    return folder


def _command() -> list[str]:
    """Return this command without `--reload`: its worker joins the running servers."""
    return [sys.executable, *(word for word in sys.orig_argv[1:] if word != OPTION)]


def _environ() -> dict[str, str]:
    # Python considers compiled code current if its source has the same size and second as before.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


async def _stop(worker: Process) -> None:
    """Stop a worker in order; kill it after `_STOP_SECONDS`."""
    if worker.returncode is not None:
        return
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await worker.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            worker.kill()
        await worker.wait()
