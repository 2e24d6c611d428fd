"""A collector of OpenTelemetry on loopback: it keeps the spans that it gets, and can refuse or break off."""

import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What a collector got."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        """The requests, decompressed."""
        self.headers: list[dict[str, str]] = []
        self.spans: dict[tuple[str, str], Span] = {}
        """By trace id and span id, as a collector joins them."""
        self.received: Counter[tuple[str, str]] = Counter()
        self.answers: list[int] = []
        """The next answers; 200 when there are no more. 0 breaks the connection off after the request was kept."""
        self.rejected: set[str] = set()
        """Names of spans that make a request malformed."""
        self._changed = threading.Condition()

    def wait(self, requests: int = 1) -> None:
        """Wait until that many requests arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= requests, timeout=60)

    @property
    def roots(self) -> list[Span]:
        """The root spans."""
        return [span for span in self.spans.values() if not span.parent_span_id]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keep a request; return the status of the answer."""
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._changed:
            self.bodies.append(body)
            self.headers.append(headers)
            status = self.answers.pop(0) if self.answers else 200
            if path.endswith("/v1/traces") and status in (0, 200):
                spans = list(_spans(body))
                if status and any(span.name in self.rejected for span in spans):
                    status = 400
                else:
                    for span in spans:
                        key = (span.trace_id.hex(), span.span_id.hex())
                        self.received[key] += 1
                        assert self.spans.setdefault(key, span) == span, "the same id for another span"
            self._changed.notify_all()
        return status


def _spans(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def attributes_of(span: Any) -> dict[str, Any]:
    """Return the attributes of a span, link or event."""
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for a block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = collector.take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            if not status:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
