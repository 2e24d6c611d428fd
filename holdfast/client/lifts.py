"""Lift a constraint, in an open run, or in a closed thread that a message continues."""

from typing import Any

from holdfast.client.interventions import intervene
from holdfast.client.messages import say
from holdfast.client.reading.runs import ENDED
from holdfast.client.sending import REOPENED, UpdateResult
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.programs import CLI
from holdfast.core.authority.statements import Lift, read_signed
from holdfast.core.base.constraint_names import constraint_name
from holdfast.core.llm.blocks import Content
from holdfast.core.run.state.origin import FORK
from holdfast.encryption.signing_keys import signed
from holdfast.errors import ThreadExists


async def lift(
    threads: Threads,
    thread: str,
    constraint: int,
    *,
    by: str,
    reason: str = "",
    message: Content | None = None,
    private: str | None = None,
) -> UpdateResult:
    """Lift a constraint, and send the agent a message.

    A closed thread continues with the message, in a run that records the lift before its agent reads the message.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        constraint: Its number.
        by: The person who lifts it.
        reason: The reason; it is in the log.
        message: The message; None for none, which a closed thread needs.
        private: The private key to sign both with; None to send them unsigned.

    Returns:
        The outcome of the lift: `reopened` for a closed thread, whose policy judges it when the agent is loaded; the
        outcome of the message if that was rejected.

    Raises:
        ThreadNotFound: There is no such thread.
        ThreadExists: Somebody else has continued the closed thread meanwhile.
        FleetKeyMissing: The thread is closed, and this process cannot continue it.
        ServerUnreachable: The server does not answer.
    """
    payload: dict[str, Any] = {"constraint": constraint, "by": by, "reason": reason}
    found = await threads.reader.find(thread)
    if found is None or found.status in ENDED:
        return await _lift_and_continue(threads, thread, payload, message=message, private=private)
    lifted = await intervene(threads, thread, "lift", payload, private=private)
    if message is None or not lifted.counts:
        return lifted
    said = await say(threads, thread, message, by=by, private=private)
    return lifted if said.counts else UpdateResult(said.outcome, f"{said.explanation}; the constraint is lifted")


async def _lift_and_continue(
    threads: Threads, thread: str, payload: dict[str, Any], *, message: Content | None, private: str | None
) -> UpdateResult:
    state, constraint = await threads.state(thread), payload["constraint"]
    name = constraint_name(constraint)
    known = {each["constraint"] for each in state["constraints"]}
    known |= {FORK} if (state.get("fork") or {}).get("effects_ask") else set()
    if constraint not in known:
        others = ", ".join(map(constraint_name, sorted(known))) or "none"
        return UpdateResult("unknown_request", f"the thread has no constraint {name}; it has {others}")
    if message is None:
        then = CLI.command("lift", thread, name, "--say", "MESSAGE")
        return UpdateResult("too_late", f"the thread is closed; continue it with a message, `{then}`")
    statement = read_signed(signed(payload, Lift, thread=thread, private=private) if private else payload, kind=Lift)
    if isinstance(statement, str):
        return UpdateResult("malformed", statement)
    try:
        await threads.start(message, thread, StartOptions(by=payload["by"], lift=statement))
    except ThreadExists:
        if threads.reader.ownership.foreign(thread):
            raise
        return UpdateResult("busy", "somebody has continued the thread meanwhile: lift the constraint in its open run")
    then = "which lifts the constraint before the agent reads the message, if the policy allows it"
    return UpdateResult(REOPENED, f"the thread was closed; a new run continues it, {then}")
