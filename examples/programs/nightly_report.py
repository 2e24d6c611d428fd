"""A nightly report that fails instead of waiting for somebody: nobody is there at three o'clock.

    python -m holdfast.examples.programs.nightly_report 2026-11-26

It prints the outcome, and exits with 1 if there is no report, as cron expects. Run again, it returns the same for a day
that is done. On the 25th of a month the till is offline, so that you see the report fail.
"""

import asyncio
import sys
from pathlib import Path

import holdfast
from holdfast import (
    Agent,
    AttentionNeeded,
    Catalog,
    Client,
    Policy,
    RunCancelled,
    RunFailed,
    ToolContext,
    allow,
    ask,
    tool,
)
from holdfast.testing import Conversation, Reply, call, say

REPORT = "report.txt"


@tool(effect="read")
def sales_of(day: str) -> str:
    """Return the sales of a day."""
    return "no data: the till was offline" if day.endswith("-25") else "3 orders, 4,711 cents"


@tool(effect="idempotent")
def write_report(text: str, context: ToolContext) -> str:
    """Write the report into the workspace."""
    (Path(context.workspace) / REPORT).write_text(text, encoding="utf-8")
    return "written"


@tool(effect="unsafe")
def restart_till(reason: str) -> str:
    """Restart the till."""
    return f"restarted: {reason}"


def script(conversation: Conversation) -> Reply:
    """Report the sales; without data, try to restart the till, which requires approval."""
    day = conversation.last_user_message.removesuffix(".").split()[-1]
    if not conversation.results:
        return call("sales_of", day=day)
    if "no data" in conversation.results[-1]:
        return call("restart_till", reason=conversation.results[-1])
    if conversation.results[-1] == "written":
        return say(f"The report of {day} is written.")
    return call("write_report", text=f"{day}: {conversation.results[-1]}")


catalog = Catalog(
    agents=[
        Agent(
            name="reporter",
            instructions="Write the report of the day into the workspace. If the till has no data, restart it.",
            tools=[sales_of, write_report, restart_till],
            policy=Policy(
                rules=(allow("sales_of"), allow("write_report"), ask("restart_till", reason="customers pay"))
            ),
        )
    ],
)


async def report(client: Client, day: str) -> tuple[bool, str]:
    """Have the report of a day written; return whether it is, and the reason if not.

    Repeated for the same day, it returns the same: the thread's id is the day's.
    """
    thread = await client.start(f"Write the report of {day}.", thread=f"report-{day}", unattended=True)
    try:
        return True, (await thread.result()).text
    except RunFailed as error:
        return False, f"{error.cause}: {error}"
    except AttentionNeeded as error:  # an effect may or may not have happened: its request waits for somebody
        return False, f"{error.cause}: {error}"
    except RunCancelled as error:
        return False, str(error)


async def main(day: str = "2026-11-26") -> int:
    """Write one report; return the exit code for cron."""
    async with holdfast.running(catalog, script=script, by="reports") as client:
        written, text = await report(client, day)
    print(text)
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:2])))
