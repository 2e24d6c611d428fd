"""A Temporal server with the defaults of `temporal server start-dev`, without the settings of Holdfast's stack."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.devstack.ports import HOST, any_free


@contextmanager
def plain_temporal(log: Path) -> Iterator[str]:
    """Run the server during the block: in memory, which is the default; only the ports are set.

    Yields:
        The server's address.
    """
    folder = str(Path(sys.executable).parent)
    binary = shutil.which("temporal", path=os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]))
    if binary is None:
        raise RuntimeError("the `temporal` program is missing: run `make bench-peers`")
    port = any_free()
    argv = [binary, "server", "start-dev", "--ip", HOST, "--port", str(port), "--ui-port", str(any_free())]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
    try:
        _wait(port, process)
        yield f"{HOST}:{port}"
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the plain Temporal server does not start") from None
            time.sleep(0.05)
    time.sleep(1)  # the namespace is created after the port is open
