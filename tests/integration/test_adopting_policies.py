"""Open runs adopt another policy on a server, while workers with the old and the new one take turns."""

from datetime import UTC, datetime

import pytest

from holdfast import Agent, Catalog, Hours, Policy, tool

pytestmark = pytest.mark.usefixtures("session_server")


@tool(effect="unsafe")
def deploy() -> str:
    """Deploy."""
    return "deployed"


def closed_now() -> Hours:
    """Return hours that begin in about half a day."""
    hour = (datetime.now(UTC).hour + 12) % 24
    return Hours(begin=f"{hour:02}:00", end=f"{(hour + 1) % 24:02}:00")


def catalog(policy: Policy) -> Catalog:
    """Return the catalog of a worker with this policy."""
    return Catalog(agents=[Agent(name="ops", instructions="Deploy.", policy=policy, tools=[deploy], dormancy=True)])
