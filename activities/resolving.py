"""What a run or a loop names, found on this worker: an agent, a folder. Trying again finds no more."""

from pathlib import Path

from temporalio.exceptions import ApplicationError

from holdfast.agents.agent import AgentSpec
from holdfast.agents.catalog import Catalog
from holdfast.errors import CatalogError
from holdfast.run.contracts import AGENT_NOT_FOUND, WORKSPACE_NOT_FOUND


def resolve_agent(catalog: Catalog, name: str | None, *, default_llm: str) -> AgentSpec:
    """The agent of that name (None: the first one).

    Raises:
        ApplicationError: AGENT_NOT_FOUND.
    """
    try:
        return catalog.spec(name, default_llm=default_llm)
    except CatalogError as error:
        raise ApplicationError(str(error), type=AGENT_NOT_FOUND, non_retryable=True) from None


def require_folder(path: Path, *, asked_for: str) -> None:
    """Refuse what is no folder of this worker. Blocks for as long as its disk does.

    Args:
        path: The place.
        asked_for: How it was named.

    Raises:
        ApplicationError: WORKSPACE_NOT_FOUND.
    """
    if not path.is_absolute() or not path.is_dir():
        message = f"workspace {asked_for!r} is not a folder on this worker; create it, or give another one"
        raise ApplicationError(message, type=WORKSPACE_NOT_FOUND, non_retryable=True)
