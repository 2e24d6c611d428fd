"""Verbs that send events: publish."""

from typing import Annotated

import typer

from holdfast.authority.statements import parsed
from holdfast.runtime.cli.exits import FAILED, OK
from holdfast.runtime.cli.options import By, Verbs
from holdfast.runtime.cli.session import Session
from holdfast.runtime.cli.text import count, visible
from holdfast.runtime.programs import CLI

verbs = Verbs()

Data = Annotated[str, typer.Option(metavar="JSON", help="The event's data: an object, of at most 16 KB.")]
EventId = Annotated[
    str, typer.Option("--id", metavar="ID", help="The event's id, which counts once. [default: a new one]")
]


@verbs.verb("publish deploy.finished", 'publish deploy.finished --data \'{"service": "web"}\' --id build-4711')
async def publish(
    session: Session,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event's name.")],
    data: Data = "",
    event_id: EventId = "",
    by: By = None,
) -> int:
    """Send an event to every run that waits for it; exit 1 if one of them could not be sent it."""
    value, name = read_data(data), session.person(by)
    threads = await session.connect()
    from rich.text import Text

    from holdfast.runtime.client import publishing

    with session.output.err.status(f"Looking for runs that wait for {visible(event)}"):
        published = await publishing.publish(threads, event, by=name, data=value, id=event_id)
    unreached = {thread: str(error) for thread, error in published.unreached.items()}
    session.output.result(
        {"event": published.event, "id": published.id, "sent": list(published.sent), "unreached": unreached},
        Text(f"Sent to {count(len(published.sent), 'run')} that waited for it; its id is {published.id}"),
    )
    for thread, why in unreached.items():
        session.output.note(f"{thread} was not sent it: {visible(why)}")
    if unreached:
        session.output.note(f"Send it again: {CLI.command('publish', published.event, '--id', published.id)}")
    return FAILED if unreached else OK


def read_data(text: str) -> dict[str, object] | None:
    """The data of an event as typed, a JSON object; None where nothing was typed."""
    value = parsed(text) if text else None
    if text and not isinstance(value, dict):
        raise typer.BadParameter('--data: give a JSON object, such as \'{"service": "web"}\'')
    return value
