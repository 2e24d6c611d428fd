"""A git server on this machine: `git http-backend`, over HTTP, for tests that push."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Backend(BaseHTTPRequestHandler):
    """Serves the repositories of a folder, to everybody, as CGI; or fails, while it is not `open`."""

    root: Path
    open = True

    def do_GET(self) -> None:  # as http.server calls it
        """Answer the request."""
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "tester",
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        if not type(self).open:
            self.send_error(503)
            return
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200")[:3]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815  # as http.server calls it

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(root: Path) -> Iterator[tuple[str, type[Backend]]]:
    """Serve the repositories of a folder; yield the URL and the backend."""
    backend = type("OneBackend", (Backend,), {"root": root})
    with ThreadingHTTPServer(("127.0.0.1", 0), backend) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", backend
        finally:
            server.shutdown()
            thread.join()
