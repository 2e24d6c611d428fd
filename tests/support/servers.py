"""The servers that tests share: a failure includes their log, and one that has ended is restarted.

Otherwise, all later tests of the process would fail without a reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from holdfast.config.stack_file import Stack, read_stack
from holdfast.devstack import processes, temporal_server
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.devstack.postgres import Postgres
from holdfast.devstack.temporal_server import TemporalServer

SETTINGS: dict[str, int | str] = {
    "frontend.WorkflowPauseEnabled": "true",  # as an operator may have it
    # A closed run is deleted only after the queue's progress was stored, by default every 30 s.
    "history.transferProcessorUpdateAckInterval": "500ms",
    **temporal_server.ONE_PARTITION,
}
"""Settings of the shared Temporal beyond those of the embedded one."""

_shared: list["_Servers"] = []
_restarted: list[str] = []


class _Servers:
    """The servers under a folder."""

    def __init__(self, folder: Path) -> None:
        self._stack = DevStack(folder, usual=Ports(any_free(), any_free(), any_free()), skip_time=True)

    def start(self) -> Stack:
        own = {name: value for name, value in SETTINGS.items() if name not in temporal_server.DYNAMIC_CONFIG}
        temporal_server.DYNAMIC_CONFIG.update(own)
        try:
            stack = self._stack.start()
        finally:
            for name in own:
                del temporal_server.DYNAMIC_CONFIG[name]
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # its data need not outlive the machine, only kills
            connection.execute("SELECT pg_reload_conf()")
        return stack

    def stop(self) -> None:
        self._stack.stop()

    def ended(self) -> list[str]:
        """Return each server that has ended, with the last lines of its log."""
        home = self._stack.home
        recorded = read_stack(home)
        assert recorded is not None
        servers = {
            "temporal": TemporalServer(home, report=print).find(recorded.temporal_pid),
            "postgres": Postgres(home, report=print).find(recorded.postgres_pid),
        }
        logs = {name: home / "logs" / f"{name}.log" for name, process in servers.items() if process is None}
        return [f"{name} has ended. The last lines of {log}:\n{processes.tail(log)}" for name, log in logs.items()]


@contextmanager
def open_stack(folder: Path) -> Iterator[Stack]:
    """Run a Temporal server and a PostgreSQL on free ports for a block. Tests may pause workflows and skip time."""
    servers = _Servers(folder)
    try:
        stack = servers.start()
        _shared.append(servers)
        yield stack
    finally:
        if servers in _shared:
            _shared.remove(servers)
        servers.stop()


def ended_servers() -> list[str]:
    """Return each shared server that has ended, or that `restart_ended` has just replaced, and why."""
    return [each for servers in _shared for each in servers.ended()] + _restarted


def restart_ended() -> None:
    """Restart shared servers that have ended, at the same addresses and on the same data."""
    _restarted.clear()
    for servers in _shared:
        if ended := servers.ended():
            servers.start()
            _restarted.extend(f"{each}\nIt was started again before this test." for each in ended)
