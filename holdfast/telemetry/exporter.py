"""Exports traces to a collector over OTLP/HTTP.

Whatever the collector has not confirmed is sent again, with the same ids: a collector that joins spans by id has each
of them once, after any crash.
"""

import gzip
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from holdfast.config.logs import EventLogger
from holdfast.core.stores import ThreadStore
from holdfast.telemetry.activations import ExportFailed, traces_of
from holdfast.telemetry.following import Part, Taken, following
from holdfast.telemetry.otlp import trace_request
from holdfast.telemetry.traces.spans import Span, Value

FEED = "traces"
"""The name of the exporter's feed."""

MOST_SPANS = 1_000
"""The most spans of a request."""

EVERY_SECONDS = 5.0
"""Seconds between two looks for activations that have ended, as between two batches of OpenTelemetry's own exporter."""

TIMEOUT_SECONDS = 10.0
"""The time limit of a request."""

_FOR_GOOD = frozenset({400, 413, 422})
"""Answers to a request that will never be accepted as it is. Any other refusal is for an operator to end."""

_ANSWER_BYTES = 65_536
"""The most bytes of an answer that are read."""

log = EventLogger("telemetry")


class TraceExporter:
    """Makes traces from the events of threads, and sends them.

    Args:
        client: With the collector's headers.
        url: The address to which traces are posted.
        resource: Attributes of whoever recorded the spans, such as `service.name`.
        content: Record what was said, too.
    """

    def __init__(
        self, client: httpx2.AsyncClient, url: str, resource: Mapping[str, Value], *, content: bool = False
    ) -> None:
        self._client = client
        self._url = url
        self._resource = resource
        self._content = content

    async def deliver(self, threads: Sequence[Part]) -> Sequence[Taken]:
        """Send the activations that have ended.

        Raises:
            ExportFailed: The collector did not confirm all of them.
        """
        spans, taken = traces_of(threads, content=self._content)
        for start in range(0, len(spans), MOST_SPANS):
            await self._send(spans[start : start + MOST_SPANS])
        return taken

    async def _send(self, spans: Sequence[Span]) -> None:
        """Send spans; those that the collector refuses for good are left out, alone.

        Raises:
            ExportFailed: The collector does not answer, or refuses everybody.
        """
        body = gzip.compress(trace_request(spans, self._resource).SerializeToString(), compresslevel=1)
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        try:
            async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                answer = await _beginning(response)
        except httpx2.HTTPError as error:
            raise ExportFailed(f"the collector of traces does not answer ({type(error).__name__})") from None
        if response.status_code in _FOR_GOOD and len(spans) > 1:
            half = len(spans) // 2
            await self._send(spans[:half])
            await self._send(spans[half:])
        elif response.status_code in _FOR_GOOD:
            log.warning("span_refused", status=response.status_code, span=spans[0].context.span)
        elif not response.is_success:
            raise ExportFailed(f"the collector of traces answers {response.status_code}")
        elif refused := _refused(answer):
            log.warning("spans_refused", spans=refused)


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the beginning of an answer; a collector's own is a few bytes."""
    answer = b""
    async for chunk in response.aiter_raw():
        answer += chunk[:_ANSWER_BYTES]
        if len(answer) >= _ANSWER_BYTES:
            return b""
    return answer


def _refused(answer: bytes) -> int:
    """Return how many spans of an accepted request the collector says that it has refused."""
    try:
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    except Exception:  # an answer in another format, from a proxy
        return 0


@asynccontextmanager
async def exporting_traces(
    url: str,
    *,
    headers: Mapping[str, str],
    resource: Mapping[str, Value],
    content: bool,
    database_url: str,
    threads: ThreadStore,
) -> AsyncIterator[None]:
    """Export traces during a block, unless another process of the same database does.

    Args:
        url: The address to which traces are posted.
        headers: For the collector.
        resource: Attributes of whoever recorded the spans.
        content: Record what was said, too.
        database_url: The database, migrated.
        threads: The record in that database.
    """
    async with httpx2.AsyncClient(headers=dict(headers), timeout=TIMEOUT_SECONDS) as client:
        exporter = TraceExporter(client, url, resource, content=content)
        async with following(FEED, exporter, database_url=database_url, threads=threads, every=EVERY_SECONDS):
            yield
