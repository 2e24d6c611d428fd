"""The verb that extends the budget of a run."""

from typing import Annotated, Any

import typer

from holdfast.cli.options import By, Key, Reason, Thread, Verbs
from holdfast.cli.reports import report_outcome
from holdfast.cli.session import Session

verbs = Verbs()

MORE = "Any of usd=1,tokens=100k,steps=20,seconds=1h."


@verbs.verb(
    "extend rel-1.2 --budget usd=1",
    'extend rel-1.2 --budget tokens=200k,seconds=30m --reason "two more files"',
    "extend rel-1.2 --budget usd=1 --key alice.key",
)
async def extend(
    session: Session,
    thread: Thread,
    budget: Annotated[str, typer.Option(metavar="AMOUNTS", help=f"The amounts to add. {MORE}")],
    by: By = None,
    reason: Reason = "",
    key: Key = None,
) -> int:
    """Extend the budget of a run. A run that is blocked by its budget resumes; time counts from now on."""
    more, name, private = read_budget(budget), session.person(by), session.private_key(key)
    threads = await session.connect(thread)
    from holdfast.client import loops
    from holdfast.client.interventions import intervene

    if await loops.find_loop(threads, thread):
        raise typer.BadParameter(
            f"{thread} is a loop, whose limits `retry` grants again: extend an iteration, as {thread}-3"
        )
    sent = await intervene(threads, thread, "extend", {**more, "by": name, "reason": reason}, private=private)
    return report_outcome(session, thread, sent)


def read_budget(text: str) -> dict[str, Any]:
    """Parse amounts such as `usd=1,tokens=100k`.

    Raises:
        typer.BadParameter: They cannot be parsed, or are too large.
    """
    from pydantic import ValidationError

    from holdfast.core.authority.statements import validation_message
    from holdfast.core.budget.budget import Amounts, read_amounts

    try:
        return Amounts(**read_amounts(text)).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        raise typer.BadParameter(f"--budget: {validation_message(error)}") from None
    except ValueError as error:
        raise typer.BadParameter(f"--budget: {error}") from None
