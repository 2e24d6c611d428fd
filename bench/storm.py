"""The outcome of a storm of freezes (`bench.freezes`), and its problems: wrongly ended claims and lost effects."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from holdfast.core.log.events import AgentEvent, RunFinished
from holdfast.testing.kill_matrix.audit import audit
from holdfast.testing.kill_matrix.person import Person
from holdfast.worker.takeover.takeover import WORKER_DIED

IDENTITY = re.compile(r"hf:[^\s'\",\]]+:[0-9a-f]{16}:\d+:\d+")


@dataclass
class Storm:
    """The freezes and kills, and their targets."""

    frozen: list[float] = field(default_factory=list)
    """Seconds of each freeze."""
    activities: Counter[str] = field(default_factory=Counter)
    """Running activities of workers when they were frozen, by type."""
    killed: set[str] = field(default_factory=set)
    """Identities of the killed workers."""
    logs: list[str] = field(default_factory=list)
    """The output of the workers."""


@dataclass
class Claims:
    """Attempts that their own worker did not end."""

    ended: Counter[str] = field(default_factory=Counter)
    """Attempts ended by a takeover, by the identity reported as gone."""
    timed_out: int = 0
    """Activities and workflow tasks ended by Temporal's time-outs."""

    def read(self, event: HistoryEvent) -> None:
        """Count an event of a history."""
        if event.HasField("activity_task_started_event_attributes"):
            self._failure(event.activity_task_started_event_attributes.last_failure)
        elif event.HasField("workflow_task_failed_event_attributes"):
            self._failure(event.workflow_task_failed_event_attributes.failure)
        elif event.HasField("workflow_task_timed_out_event_attributes"):
            self.timed_out += 1

    def _failure(self, failure: Failure) -> None:
        if failure.application_failure_info.type == WORKER_DIED:
            self.ended[IDENTITY.findall(failure.message)[0]] += 1
        self.timed_out += failure.HasField("timeout_failure_info")


async def claims_of(client: Client, thread: str, run_id: str) -> Claims:
    """Return the ends of a thread's attempts, over all of its Temporal runs."""
    claims = Claims()
    while run_id:
        events = (await client.get_workflow_handle(thread, run_id=run_id).fetch_history()).events
        for event in events:
            claims.read(event)
        run_id = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return claims


def judge(
    storm: Storm, claims: Sequence[Claims], people: Mapping[str, Person], effects: Mapping[str, int], *, seconds: float
) -> tuple[list[str], list[str]]:
    """Return the figures and the problems, one sentence each."""
    logs = [person.log for person in people.values()]
    wrong = [
        f"{log.thread}: {what}"
        for log in logs
        for what in audit(log.events, effects=effects, sent=people[log.thread].sent)
    ]
    keys = {key for log in logs for key in log.keys.values()}
    wrong += [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]
    ended = sum((each.ended for each in claims), Counter[str]())
    living = {who: count for who, count in ended.items() if who not in storm.killed}
    wrong += [f"{count} claims of {who} were ended although it was alive" for who, count in living.items()]
    lines = [line for text in storm.logs for line in text.splitlines() if "taken_over" in line]
    named = {who for line in lines for who in IDENTITY.findall(line)}
    wrong += [f"the log reports a takeover of {who}, which was alive" for who in sorted(named - storm.killed)]
    events: list[AgentEvent] = [event for log in logs for event in log.events]
    completed = sum(isinstance(event, RunFinished) and event.outcome == "completed" for event in events)
    kinds = Counter(event.type for event in events)
    summary = [
        f"- {len(storm.frozen)} freezes of {min(storm.frozen):.0f} to {max(storm.frozen):.0f} s,"
        f" {sum(storm.frozen):.0f} s together, and {len(storm.killed)} SIGKILLs, in {seconds / 60:.0f} min:"
        f" **{sum(living.values())} claims of a living process ended by takeover**,"
        f" {sum(count > 1 for count in effects.values())} duplicate effects",
        "- running activities of the frozen workers: "
        + ", ".join(f"{kind} {count}" for kind, count in storm.activities.most_common()),
        f"- takeovers from {len(named)} workers ended {_sum(lines, 'activities')} activities and"
        f" {_sum(lines, 'workflows')} workflow tasks; the histories have {sum(ended.values())} failures by takeover"
        f" and {sum(each.timed_out for each in claims):,} time-outs",
        f"- {completed} of {len(logs)} runs completed, over {sum(1 + log.continuations for log in logs)} Temporal runs;"
        f" {len(effects):,} effects; {kinds['decision_received']:,} decisions; {kinds['reconcile_requested']:,} times a"
        " person was asked whether an effect had happened",
    ]
    return summary, wrong


def _sum(lines: Sequence[str], name: str) -> int:
    """Sum the count of that name over lines of the log."""
    return sum(int(number) for line in lines for number in re.findall(rf"\b{name}=(\d+)", line))
