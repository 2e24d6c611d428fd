"""The spans of the activations that have ended with new events, for every exporter of traces."""

from collections.abc import Sequence

from holdfast.telemetry.following import Part, Taken
from holdfast.telemetry.traces.spans import Span
from holdfast.telemetry.traces.tracer import Tracer


class ExportFailed(Exception):
    """Not all spans were confirmed; they are sent again later."""


def traces_of(threads: Sequence[Part], *, content: bool) -> tuple[list[Span], list[Taken]]:
    """Return the spans of the activations that have ended with new events, and how far each thread is exported.

    Args:
        threads: The threads with their new events.
        content: Record what was said, too.
    """
    spans: list[Span] = []
    taken = []
    for part in threads:
        tracer = part.state or Tracer(part.thread, part.carried, content=content)
        traces = [trace for event in part.events for trace in tracer.take(event)]
        traces += tracer.finish()
        for trace in traces:
            spans += trace.spans
        taken.append(Taken(tracer.position, tracer.progress, state=tracer if tracer.ahead else None))
    return spans, taken
