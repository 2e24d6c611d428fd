"""A Temporal server for tests, which deletes its data at the end.

    python -m holdfast.devstack.throwaway

It prints its address, and runs until its standard input is closed: it ends with the process that started it, even if
that is killed. If the server ends earlier, the last lines of its log go to standard error.
"""

import select
import sys
import tempfile
import threading
import time
from pathlib import Path

from holdfast.devstack import processes
from holdfast.devstack.ports import HOST, Ports, any_free
from holdfast.devstack.temporal_server import DYNAMIC_CONFIG, ONE_PARTITION, SKIPPING, TemporalServer
from holdfast.devstack.web_ui import hidden_address
from holdfast.errors import StackError

START_SECONDS = 60.0
"""How long the server may take to answer."""

WATCH_SECONDS = 0.2
"""Seconds between checks whether it still runs."""


def main() -> None:
    """Run a server until standard input is closed."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        config = {**DYNAMIC_CONFIG, **SKIPPING, **ONE_PARTITION}
        server = TemporalServer(Path(folder), report=lambda line: None, config=config)
        try:
            _, ports = server.ensure(
                Ports(any_free(), any_free(), any_free()),
                web_ui=hidden_address(),
                hint=None,
                owned=True,
                deadline=time.monotonic() + START_SECONDS,
                cancelled=threading.Event(),
            )
            print(f"{HOST}:{ports.grpc}", flush=True)
            while not select.select([sys.stdin], [], [], WATCH_SECONDS)[0]:  # readable means closed
                if server.find(server.started.pid if server.started else None) is None:
                    sys.exit(f"Temporal has ended. The last lines of its log:\n{processes.tail(server.log)}")
        except StackError as error:
            sys.exit(str(error))
        finally:
            if server.started:
                processes.stop(server.started, [], grace=10)


if __name__ == "__main__":
    main()
