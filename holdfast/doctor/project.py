"""`doctor` on the project: its files, its state folder, its ports, its LLM, and the worker's offer on the queue."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.composition.components import load_catalog
from holdfast.config.loading import load
from holdfast.config.namesake import namesake_warning
from holdfast.config.programs import WORKER
from holdfast.config.project import NAMING_A_SERVER, TOML, Project
from holdfast.config.running_stacks import is_running, is_taken, running_stacks, without_stack
from holdfast.config.settings import Settings, unknown_variables
from holdfast.config.stack_file import LOOPBACK, read_stack, record_fault
from holdfast.core.agents.advice import description_advice, idle_tool_advice, rule_advice
from holdfast.core.agents.catalog import Catalog
from holdfast.core.base.text import count
from holdfast.doctor.check import Check
from holdfast.errors import HoldfastError
from holdfast.worker.takeover.registry import FOLDER, Offer, WorkerRegistry
from holdfast.worker.takeover.worker_identity import parse_identity

_UI_PORT: Final = 8233


def offers(home: Path, identities: Sequence[str], *queue: str) -> dict[str, Offer]:
    """Return the offers of the workers that share the state folder, by worker identity.

    Args:
        home: The state folder.
        identities: The workers that poll the queue.
        queue: The server's address, the namespace and the queue's name.
    """
    if not (home / FOLDER).is_dir():
        return {}
    try:
        registry = WorkerRegistry(home, *queue)
    except OSError:
        return {}
    parsed = {text: parse_identity(text) for text in identities}
    offered = {text: registry.offer(identity) for text, identity in parsed.items() if identity}
    return {text: offer for text, offer in offered.items() if offer}


def namesake_check() -> Check | None:
    """Check for the other distribution named `holdfast` in this environment; None if it is not installed."""
    warning = namesake_warning()
    return Check("installation", "missing", warning) if warning else None


def settings_check(project: Project) -> Check:
    """List the files that were read."""
    if project.files:
        return Check("settings", "ok", "; ".join(project.listing()))
    return Check("settings", "ok", f"from the environment alone: there is no {Path.cwd() / TOML}")


def variables_check(project: Project) -> Check | None:
    """Find variables that look like settings but have no effect; None if there are none."""
    unknown = unknown_variables(project.environ)
    return Check("variables", "weak", " ".join(unknown), "correct their names, or unset them") if unknown else None


def home_check(project: Project, home: Path, address: str, *, reached: bool) -> Check | None:
    """Check that the state folder belongs to the server in use; None if no embedded stack is meant.

    Args:
        project: The project's files and environment.
        home: The state folder.
        address: The server's address.
        reached: Whether a server answers there.
    """
    if any(project.environ.get(name, "").strip() for name in NAMING_A_SERVER):
        return None
    if fault := record_fault(home):
        fix = f"remove {home / 'stack.json'}, and start {WORKER.command('--dev')}"
        return Check("stack", "missing", f"{home / 'stack.json'} does not count: {fault}", fix)
    stack = read_stack(home)
    if reached and stack and is_running(home, stack):
        return Check("stack", "ok", f"{home}: {stack.temporal_address}")
    if reached or not any(each.home != home for each in running_stacks()):
        return None
    return Check("stack", "missing", *without_stack(home, address))


def port_check(config: dict[str, Any], *, reached: bool, gateway: int) -> Check | None:
    """Find programs that occupy ports that ours would use; None if all are free.

    Args:
        config: Temporal's connection configuration.
        reached: Whether Temporal answers there. If not, `worker --dev` would use that port, and that of the Web UI.
        gateway: The gateway's port.
    """
    host, _, port = str(config["target_host"]).rpartition(":")
    uses = {gateway: "the gateway"}
    if not reached and host in LOOPBACK and port.isdigit():
        uses |= {int(port): "Temporal", _UI_PORT: "the Web UI"}
    taken = [
        f"port {port}, for {use}, is taken by {_holder(port)}"
        for port, use in uses.items()
        if is_taken(f"127.0.0.1:{port}")
    ]
    if not taken:
        return None
    fix = f"`{WORKER.command('--dev')}` takes other ports by itself; for the gateway, set HOLDFAST_GATEWAY_PORT"
    return Check("ports", "open", "; ".join(taken), fix)


def llm_check(settings: Settings, project: Project, offered: Sequence[Offer]) -> Check | None:
    """Check which LLM replies without a key; None if the settings name a key or an endpoint."""
    if not settings.scripted:
        return None
    if own := sorted(settings.own_endpoints):
        return Check("llm", "ok", f"{settings.llm}; endpoints: {', '.join(own)}, and not OpenAI's or one in its place")
    if live := sorted({each.llm for each in offered} - {"scripted"}):
        return Check("llm", "ok", f"{', '.join(live)}, as the worker says")
    if script := project.code.get("HOLDFAST_SCRIPT"):
        return Check("llm", "ok", f"scripted by {script}, until there is a key (OPENAI_API_KEY or OPENAI_BASE_URL)")
    fix = "set OPENAI_API_KEY or OPENAI_BASE_URL where workers run"
    if project.files:
        fix = f"put OPENAI_API_KEY into {project.root / '.env'}, or name a script in {project.root / TOML}"
        return Check("llm", "missing", "neither key, nor endpoint, nor script", fix)
    return Check("llm", "open", f"no key and no endpoint here; `{WORKER.command('--dev')}` uses a scripted LLM", fix)


def catalog_check(settings: Settings, project: Project, offered: Sequence[Offer], *, imports: bool = True) -> Check:
    """Check that the worker's catalog is the one named here; list its agents.

    Args:
        settings: From the environment.
        project: The project's files and environment.
        offered: What the workers on the queue offer.
        imports: This process may import the catalog, if not only the project's files name it.
    """
    named = project.code.get("HOLDFAST_CATALOG", "")
    if differing := [each for each in offered if named and not _is_same(each, named, project)]:
        detail = f"{named} is named here, but the worker on the queue {differing[0]}; the worker's counts"
        return Check("catalog", "missing", detail, _restart(project))
    if not (imports and is_imported(project)):
        if offered:
            return Check("catalog", "ok", f"the worker {offered[0]}")
        return Check("catalog", "open", f"{named or settings.catalog}; only a worker imports it")
    try:
        catalog = load(settings.catalog, Catalog)
    except HoldfastError as error:
        return Check("catalog", "missing", str(error), "set HOLDFAST_CATALOG to package.module:attribute")
    if offered and named and set(offered[0].agents) != set(catalog.agents):
        detail = f"{named} has the agents {', '.join(catalog.agents)}, but the worker {offered[0]}"
        return Check("catalog", "missing", detail, _restart(project))
    if offered and not named:
        return Check("catalog", "ok", f"the worker {offered[0]}")
    agents, tools = ", ".join(catalog.agents), count(len(catalog.tools), "tool")
    stores = {"threads": catalog.threads, "artifacts": catalog.artifacts, "memories": catalog.memories}
    own = ", ".join(name for name, store in stores.items() if store is not None)
    kept = f"; stores of its own: {own}" if own else ""
    return Check("catalog", "ok", f"{settings.catalog}: agents {agents}; {tools}{kept}")


def queue_check(offered: Sequence[Offer]) -> Check | None:
    """Check that the workers on the queue offer the same agents; None if they do, as far as they are registered."""
    others = [each for each in offered[1:] if each.differs(offered[0])]
    if not others:
        return None
    detail = f"any of these may take a run: one {offered[0]}; another one {others[0]}"
    return Check(
        "queue", "missing", detail, "give each catalog a queue of its own (HOLDFAST_TASK_QUEUE), or stop the old ones"
    )


def advice_checks(settings: Settings, not_imported: str) -> list[Check]:
    """Find probable mistakes in the catalog; none if the catalog is not imported here."""
    if not_imported:
        return []
    try:
        catalog = load_catalog(settings)
    except HoldfastError:
        return []  # `catalog_check` reports it
    rules = [Check("rule", "weak", each, "correct or remove it: it decides nothing") for each in rule_advice(catalog)]
    tools = [Check("tools", "weak", each) for each in idle_tool_advice(catalog)]
    return rules + tools + [Check("description", "open", each) for each in description_advice(catalog)]


def is_imported(project: Project) -> bool:
    """Whether this process may import the catalog: not if only the project's files name it."""
    return "HOLDFAST_CATALOG" not in project.code or bool(project.environ.get("HOLDFAST_CATALOG", "").strip())


def not_imported(project: Project, offered: Sequence[Offer], settings: Settings, *, imports: bool = True) -> str:
    """Return the name of the effective catalog if it is not imported here; else empty. The arguments are as for
    `catalog_check`.
    """
    named = project.code.get("HOLDFAST_CATALOG", "")
    if not (imports and is_imported(project)):
        return named or (offered[0].catalog if offered else "") or settings.catalog
    return "" if named or not offered else offered[0].catalog


def _is_same(offer: Offer, named: str, project: Project) -> bool:
    """Whether a worker's catalog is the one named here: a module of the project is in the project's folder."""
    module = project.root / named.partition(":")[0].partition(".")[0]
    own = bool(project.files) and (module.is_dir() or module.with_suffix(".py").exists())
    return offer.catalog == named and (not own or offer.folder == str(project.root))


def _restart(project: Project) -> str:
    return f"stop that worker, and start {WORKER.command('--dev')} in {project.root}; or use that worker's agents"


def _holder(port: int) -> str:
    """Describe the program that listens on a port, if this user may see it."""
    import psutil

    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == port:
                return f"{psutil.Process(each.pid).name()} (process {each.pid})"
    return "a program that this user cannot see"
