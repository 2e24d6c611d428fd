"""The verb that reruns recorded runs: eval."""

import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import Verbs
from holdfast.cli.session import Session
from holdfast.core.base.text import visible_json

if TYPE_CHECKING:
    from holdfast.config.settings import Settings
    from holdfast.evaluation.endpoints import Endpoint

verbs = Verbs()


@verbs.verb(
    "eval runs/ --llm recorded --catalog mycompany.agents:catalog",
    "eval runs/ --llm gpt-5-mini",
    "eval runs/refunds.toml --policy stricter.yaml --llm recorded",
    "eval runs/ --llm gpt-5-mini --json | jq '.runs[] | select(.holds | not)'",
    name="eval",
    farewell="Not evaluated.",
)
async def evaluate(
    session: Session,
    dataset: Annotated[
        Path,
        typer.Argument(metavar="SET", help="A folder of portable files, a TOML file that names some, or a single one."),
    ],
    llm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The LLM of all agents; `recorded`: the recorded replies. [default: theirs]"),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agent for all runs. [default: the one with the recorded name]"),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A policy in place of every agent's own, as YAML.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long each rerun may take.")] = 600,
) -> int:
    """Rerun recorded runs with today's agents, and compare; no tool runs.

    Tool results and people's decisions come from the recordings. --catalog or HOLDFAST_CATALOG names the agents. Exit
    code 1 if a run fails an expectation. It needs no server and no worker: it starts its own.
    """
    from holdfast.composition.components import load_catalog
    from holdfast.composition.telemetry.logs import configure_logging
    from holdfast.evaluation.evaluate import evaluate_dataset
    from holdfast.evaluation.files import read_dataset
    from holdfast.evaluation.runner import open_eval_runner

    folder, runs = read_dataset(dataset)
    settings = _settings(session, policy)
    configure_logging(logging.getLevelName(logging.ERROR), settings.log_format)
    catalog = load_catalog(settings)
    async with AsyncExitStack() as cleanup:
        endpoint = await _endpoint(session, settings, llm, cleanup)
        player = await cleanup.enter_async_context(open_eval_runner(catalog, endpoint, patience=seconds))
        evaluations = await evaluate_dataset(player, folder, runs, agent=agent)
    from holdfast.cli.screens.eval_screens import eval_screen, eval_view

    view = eval_view(str(dataset), llm, evaluations)
    line = visible_json(json.dumps(view, ensure_ascii=False)).encode("utf-8", "replace")  # files are untrusted
    session.output.result(view, None if session.output.as_json else eval_screen(evaluations), line=line)
    return OK if view["ok"] else FAILED


def _settings(session: Session, policy: Path | None) -> "Settings":
    """Return the settings. `eval` imports the catalog, so an option or the environment has to name it."""
    from holdfast.config.project import TOML
    from holdfast.errors import SettingsError

    project = session.project
    catalog = project.code.get("HOLDFAST_CATALOG")
    if catalog and not project.environ.get("HOLDFAST_CATALOG"):
        raise SettingsError(
            f"only files of {project.root} name the catalog {catalog} (such as {TOML}), and `eval` runs its "
            f"code. If you trust that folder, name it yourself: --catalog {catalog}"
        )
    return session.settings.model_copy(update={"policy": policy}) if policy else session.settings


async def _endpoint(session: Session, settings: "Settings", llm: str | None, cleanup: AsyncExitStack) -> "Endpoint":
    """Open the LLM for the reruns: the recorded replies, or the endpoint of a worker with these settings."""
    from holdfast.core.llm.names import is_reference
    from holdfast.endpoints.endpoints import open_endpoints
    from holdfast.errors import SettingsError
    from holdfast.evaluation.endpoints import Endpoint, scripted
    from holdfast.evaluation.replies import RECORDED, RecordedReplies

    if llm == RECORDED:
        return await cleanup.enter_async_context(scripted(RecordedReplies()))
    others = settings.own_endpoints
    if settings.scripted and not settings.script and not (others if llm is None else is_reference(llm, others)):
        raise SettingsError(
            "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set. Set one, or use the recorded replies: --llm recorded"
        )
    opened = open_endpoints(settings, dev=settings.script is not None, say=session.output.note)
    return Endpoint(await cleanup.enter_async_context(opened), settings.default_llm, llm=llm)
