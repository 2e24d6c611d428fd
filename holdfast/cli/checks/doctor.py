"""`doctor`: checks the requirements of Holdfast, and says how to fix a missing one. Never prints a secret."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli.checks.hardening_checks import hardening
from holdfast.cli.checks.llm_probe import probe_endpoints, probe_llm
from holdfast.cli.checks.offered_agents import fresh_workers
from holdfast.cli.checks.project_checks import (
    advice_checks,
    catalog_check,
    home_check,
    llm_check,
    namesake_check,
    not_imported,
    offers,
    port_check,
    queue_check,
    settings_check,
    variables_check,
)
from holdfast.cli.exits import FAILED, OK, UNREACHABLE
from holdfast.cli.screens.anchors import anchors_check
from holdfast.cli.screens.checks import Check
from holdfast.cli.text import count, visible
from holdfast.client.connect import connect
from holdfast.config.programs import CLI, PACKAGE, WORKER
from holdfast.config.project import Project
from holdfast.config.settings import Settings
from holdfast.config.stack_file import read_stack
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.errors import ServerUnreachable
from holdfast.worker.takeover.registry import Offer
from holdfast.workspace.sandbox import DEFAULT, unavailable_reason

_LIMIT = timedelta(seconds=5)


async def examine(settings: Settings, config: dict[str, Any], project: Project) -> list[Check]:
    """Run all checks; a failing check does not prevent the others."""
    database = asyncio.create_task(asyncio.to_thread(_database, settings))
    probe = None if settings.scripted else asyncio.create_task(probe_llm(settings))
    endpoints = asyncio.create_task(probe_endpoints(settings))
    server, offered = await _temporal(settings, config)
    reached = server[0].status == "ok"
    foreign = not_imported(project, offered)
    profile = await asyncio.to_thread(hardening, settings, config, not_imported=foreign)
    checks = [
        namesake_check(),
        settings_check(project),
        variables_check(project),
        *server,
        home_check(project, settings.home, config["target_host"], reached=reached),
        await asyncio.to_thread(port_check, config, reached=reached, gateway=settings.gateway_port),
        await database,
        await asyncio.to_thread(anchors_check, settings),
        llm_check(settings, project, offered) or (await probe if probe else None),
        *await endpoints,
        catalog_check(settings, project, offered),
        queue_check(offered),
        *await asyncio.to_thread(advice_checks, settings, foreign),
        await asyncio.to_thread(_commands),
        *profile,
    ]
    return [check for check in checks if check]


def exit_code(checks: Sequence[Check], *, hardened: bool = False) -> int:
    """Return 4 if the server is missing, 1 if anything else is, else 0; with `hardened`, `weak` counts as missing."""
    faults = ("missing", "weak") if hardened else ("missing",)
    missing = {check.name for check in checks if check.status in faults}
    if missing & {"temporal", "namespace"}:
        return UNREACHABLE
    return FAILED if missing else OK


def report(checks: Sequence[Check]) -> Text:
    """Return the report for people."""
    styles = {"ok": "green", "missing": "bold red", "open": "yellow", "weak": "yellow"}
    screen = Text()
    for check in checks:
        shown = "–" if check.status == "open" else check.status
        screen.append(f"{shown:<8}", styles[check.status]).append(f"{check.name:<19}", "bold")
        screen.append(visible(check.detail) + "\n")
        if check.fix and check.status != "ok":
            screen.append(f"{'':<27}→ {check.fix}\n", "dim")
    screen.rstrip()
    return screen


async def _temporal(settings: Settings, config: dict[str, Any]) -> tuple[list[Check], list[Offer]]:
    address, start = config["target_host"], f"{WORKER.command('--dev')}, or set TEMPORAL_ADDRESS"
    try:
        client = await connect(config)
        system = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_LIMIT)
    except (ServerUnreachable, RPCError) as error:
        detail = str(error) if isinstance(error, ServerUnreachable) else f"{address}: {error.message}"
        return [Check("temporal", "missing", detail, start)], []
    checks = [Check("temporal", "ok", f"server {system.server_version} at {address}")]
    try:
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), timeout=_LIMIT
        )
        checks.append(Check("namespace", "ok", f"{client.namespace}, place {described.namespace_info.id}"))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            detail = f"the server has no namespace {client.namespace!r}"
            return [*checks, Check("namespace", "missing", detail, "set TEMPORAL_NAMESPACE to one that it has")], []
        checks.append(Check("namespace", "open", f"{client.namespace}: {error.message}"))
    workers, identities = await _workers(client, settings.task_queue)
    queue = (client.service_client.config.target_host, client.namespace, settings.task_queue)
    offered = await asyncio.to_thread(offers, settings.home, identities, *queue)
    return [*checks, await _search_attributes(client), workers], list(offered.values())


async def _search_attributes(client: Client) -> Check:
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=_LIMIT
        )
    except RPCError as error:
        return Check("search attributes", "open", f"this server does not list them ({error.message})")
    missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
    if missing:
        flags = " ".join(f"--name {name} --type {SEARCH_ATTRIBUTES[name]}" for name in missing)
        fix = f"start a worker, which registers them; or: temporal operator search-attribute create {flags}"
        return Check("search attributes", "missing", ", ".join(missing), fix)
    return Check("search attributes", "ok", ", ".join(SEARCH_ATTRIBUTES))


async def _workers(client: Client, task_queue: str) -> tuple[Check, list[str]]:
    """Check for workers on the task queue; return their identities, too."""
    try:
        fresh = await fresh_workers(client, task_queue)
    except RPCError as error:
        return Check("workers", "open", f"task queue {task_queue}: {error.message}"), []
    if fresh:
        detail = f"{count(len(fresh), 'worker')} on task queue {task_queue}: {', '.join(fresh)}"
        return Check("workers", "ok", detail), fresh
    return Check("workers", "missing", f"no worker listens on task queue {task_queue}", WORKER.command("--dev")), []


def _database(settings: Settings) -> Check:
    import psycopg

    stack = read_stack(settings.home)
    url = settings.database_url or (stack.database_url if stack else None)
    if url is None:
        return Check("database", "open", "DATABASE_URL is not set here; workers need it")
    try:
        with psycopg.connect(url, connect_timeout=3) as connection:
            where = f"{connection.info.dbname} at {connection.info.host}"
            table = connection.execute("SELECT to_regclass('holdfast.migrations') IS NOT NULL").fetchone()
            rows = connection.execute("SELECT name FROM holdfast.migrations").fetchall() if table == (True,) else []
    except psycopg.Error as error:
        fix = "check DATABASE_URL" if settings.database_url else WORKER.command("--dev")
        return Check("database", "missing", _without_password(str(error), url), fix)
    migrations = PACKAGE / "storage/migrations"
    required = {file.stem for file in migrations.glob("*.sql")}
    if missing := sorted(required - {name for (name,) in rows}):
        fix = CLI.command("migrate")
        return Check("database", "missing", f"{where} lacks the migrations {', '.join(missing)}", fix)
    return Check("database", "ok", f"{where}, {count(len(rows), 'migration')} applied")


def _commands() -> Check:
    if reason := unavailable_reason(DEFAULT):
        fix = "optional; see docs/how-to/work-with-files.md"
        return Check("confined commands", "open", f"do not work on this machine: {reason}", fix)
    return Check("confined commands", "ok", "work on this machine")


def _without_password(message: str, url: str) -> str:
    password = urlsplit(url).password
    message = " ".join(message.split())
    return message.replace(password, "…") if password else message
