"""Run `worker.py --dev` as a separate process that can be killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil

from holdfast.config.stack_file import Stack, read_stack, write_stack
from holdfast.devstack.ports import is_free

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def reserve_ports(home: Path) -> None:
    """Make a stack under `home` use ports that no other process takes while its servers are down.

    Neither the usual ones, which the next stack takes, nor ephemeral ones.
    """
    free = [port for port in random.sample(range(20_000, 30_000), 50) if is_free(port)]
    stack = Stack(
        temporal_address=f"127.0.0.1:{free[0]}",
        namespace="default",
        ui_url="",
        database_url="",
        temporal_port=free[0],
        ui_port=free[1],
        http_port=free[2],
    )
    home.mkdir(parents=True, exist_ok=True)
    write_stack(home, stack)


class WorkerProcess:
    """A worker with the embedded stack under `home`.

    Args:
        home: The state folder.
        beside: A worker whose stack and task queue it shares; None for its own.
        options: More words after `worker.py --dev`.
        environ: More environment variables.
    """

    def __init__(
        self, home: Path, *, beside: "WorkerProcess | None" = None, options: Sequence[str] = (), **environ: str
    ) -> None:
        self.home = home
        self._options = options
        # Its own namespace: after its server was killed, a worker might reach another one at the same port.
        self.task_queue: str = beside.task_queue if beside else f"test-{uuid4().hex[:8]}"
        if not beside:
            reserve_ports(home)
        self._name = f"worker-{uuid4().hex[:4]}"
        self._environ = {"HOLDFAST_TASK_QUEUE": self.task_queue, **environ}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def stack(self) -> Stack:
        """Return the addresses of its servers."""
        stack = read_stack(self.home)
        assert stack is not None
        return stack

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """Return its output since it was started."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self.home.parent / f"{self._name}-{self._starts}.log"

    def start(self, **environ: str) -> None:
        """Start it with more environment variables, and wait until it prints that it is ready."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "OPENAI_", "HOLDFAST_"))}
        inherited.pop("DATABASE_URL", None)
        self._starts += 1
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "worker.py"), "--dev", *self._options],
                cwd=ROOT,
                env={**inherited, "HOLDFAST_HOME": str(self.home), **self._environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE
        while "Ready." not in self.log:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL the worker; its servers keep running."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """SIGKILL the worker and its servers."""
        self.kill()
        self.kill_servers()

    def kill_servers(self) -> None:
        """SIGKILL the servers, with all their children."""
        stack = self.stack
        victims: list[psutil.Process] = []
        for pid in (stack.temporal_pid, stack.postgres_pid, stack.web_ui_pid):
            assert pid is not None
            server = psutil.Process(pid)
            victims += [server, *server.children(recursive=True)]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):  # a backend ends by itself after its client was killed
                victim.kill()
        psutil.wait_procs(victims, timeout=PATIENCE)

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def stop(self) -> int:
        """End it as Ctrl-C does, which stops the servers that it started; return its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)
