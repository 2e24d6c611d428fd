"""Content stays out of spans, whichever event and whichever field of it holds it: each text of each event is tried."""

import json
from collections.abc import Iterator
from typing import Any, get_args

from holdfast.core.base.canonical import canonical
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_stored
from holdfast.telemetry.otlp import trace_request
from holdfast.telemetry.traces.tracer import spans_of
from tests.replay.test_verifiers import recorded_logs

CANARY = "CANARY-7f3a"

IDS = frozenset(
    {
        *("type", "at", "digest", "thread", "run_id", "first_run_id", "id", "request", "request_id", "key", "path"),
        *("agent", "name", "llm", "endpoint", "schedule", "rule", "cause", "status", "outcome", "traceparent"),
    }
)
"""Fields that may reach a span: ids, names of the catalog, labels of rules, and values of closed lists."""

Path = tuple[str | int, ...]


def texts(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of all texts in a value."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from texts(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from texts(each, (*path, index))


def planted(value: Any, path: Path) -> Any:
    """Return the value with the canary in place of one text."""
    if not path:
        return f"{CANARY} {value}"
    at, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[at] = planted(value[at], tuple(rest))
    return copy


class Planter:
    """Plants the canary in all texts of events that can hold it."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, Path], bool] = {}
        self.planted: set[tuple[str, Path]] = set()

    def plant(self, event: dict[str, Any]) -> Any:
        """Return an event with canaries."""
        for path in list(texts(event)):
            names = tuple(each for each in path if isinstance(each, str))
            if names[-1] in IDS:
                continue
            place = (event["type"], names)
            if self._holds.get(place) is False:
                continue
            tried = planted(event, path)
            try:
                decode_stored(canonical(tried))
            except Exception:  # a value of a closed list
                self._holds[place] = False
                continue
            self._holds[place] = True
            self.planted.add(place)
            event = tried
        return decode_stored(canonical(event))


def test_no_text_of_any_event_reaches_a_span_unless_content_is_on() -> None:
    """Texts of people, LLMs, tools and providers are planted in each event of the recorded runs; no span has one."""
    planter = Planter()
    kinds: set[str] = set()
    shown = 0
    for name, events in recorded_logs("0.3.0").items():
        if events[0].type == "loop_started":
            continue
        log = [planter.plant(json.loads(canonical(event.model_dump(mode="json")))) for event in events]
        kinds |= {event.type for event in log}
        threads = [event.thread for event in log if event.type in ("run_started", "run_forked")]
        plain = [span for trace in spans_of(log, threads[-1]) for span in trace.spans]
        assert CANARY not in str(trace_request(plain, {})), name
        full = [span for trace in spans_of(log, threads[-1], content=True) for span in trace.spans]
        shown += CANARY in str(trace_request(full, {}))
    assert shown, "with content, canaries are there: they were planted where content is"
    vocabulary = {each.model_fields["type"].default for each in get_args(get_args(AgentEvent)[0])}
    assert len(kinds & vocabulary) >= 0.8 * len(vocabulary), sorted(vocabulary - kinds)
    assert len(planter.planted) > 100
