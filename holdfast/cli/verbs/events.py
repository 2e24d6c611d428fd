"""Verbs that send events: wake, publish."""

import json
from typing import Annotated, Any

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import By, Reason, Thread, Verbs
from holdfast.cli.reports import report_outcome
from holdfast.cli.session import Session
from holdfast.cli.text import count, visible
from holdfast.config.programs import CLI

verbs = Verbs()

Data = Annotated[str, typer.Option(metavar="JSON", help="The event's data: an object, of at most 16 KB.")]
EventId = Annotated[
    str, typer.Option("--id", metavar="ID", help="The event's id, which counts once. [default: a new one]")
]


@verbs.verb(
    'wake rel-1.2 --reason "the build is done"',
    'wake rel-1.2 --event deploy.finished --data \'{"service": "web"}\' --id 4711',
)
async def wake(
    session: Session,
    thread: Thread,
    by: By = None,
    reason: Reason = "",
    event: Annotated[str, typer.Option(metavar="NAME", help="Send this event, instead of waking the run now.")] = "",
    data: Data = "",
    event_id: EventId = "",
    call: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only for the call of this number.")] = None,
) -> int:
    """Wake a dormant run, or send it an event: the agent reads it when one of its calls waits for such an event."""
    value = read_data(data)
    if (data or event_id) and not event:
        raise typer.BadParameter("--data and --id belong to an event: add --event NAME")
    threads = await session.connect(thread)
    from holdfast.client.interventions import intervene

    payload = {"event": event, "id": event_id, "data": value, "call": call, "by": session.person(by), "reason": reason}
    sent = await intervene(threads, thread, "wake", payload)
    return report_outcome(session, thread, sent)


@verbs.verb("publish deploy.finished", 'publish deploy.finished --data \'{"service": "web"}\' --id build-4711')
async def publish(
    session: Session,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event's name.")],
    data: Data = "",
    event_id: EventId = "",
    by: By = None,
) -> int:
    """Send an event to every run that waits for it; exit 1 if it could not be sent to one of them."""
    value, name = read_data(data), session.person(by)
    threads = await session.connect()
    from rich.text import Text

    from holdfast.client import publishing

    with session.output.err.status(f"Looking for runs that wait for {visible(event)}"):
        published = await publishing.publish(threads, event, by=name, data=value, id=event_id)
    unreached = {thread: str(error) for thread, error in published.unreached.items()}
    session.output.result(
        {"event": published.event, "id": published.id, "sent": list(published.sent), "unreached": unreached},
        Text(f"Sent to {count(len(published.sent), 'run')} that waited for it; its id is {published.id}"),
    )
    for thread, why in unreached.items():
        session.output.note(f"Not sent to {thread}: {visible(why)}")
    if unreached:
        session.output.note(f"Send it again: {CLI.command('publish', published.event, '--id', published.id)}")
    return FAILED if unreached else OK


def read_data(text: str) -> dict[str, Any]:
    """Parse the data of an event: a JSON object; empty for an empty text."""
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter('--data: give a JSON object, such as \'{"service": "web"}\'')
    return value
