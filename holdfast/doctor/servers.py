"""`doctor` on the servers: Temporal with its namespace, search attributes and workers; and the database."""

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.connect import connect
from holdfast.client.workers import pollers
from holdfast.config.programs import CLI, PACKAGE, WORKER
from holdfast.config.settings import Settings
from holdfast.config.stack_file import read_stack
from holdfast.core.base.text import count
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.doctor.check import Check
from holdfast.doctor.project import offers
from holdfast.errors import ServerUnreachable
from holdfast.worker.takeover.registry import Offer

_LIMIT = timedelta(seconds=5)


async def temporal_checks(settings: Settings, config: dict[str, Any]) -> tuple[list[Check], list[Offer]]:
    """Check Temporal, its namespace and search attributes, and the workers on the queue; return their offers, too.

    Args:
        settings: From the environment.
        config: Temporal's connection configuration (`connect_config`).
    """
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
        fresh = [each.identity for each in await pollers(client, task_queue)]
    except RPCError as error:
        return Check("workers", "open", f"task queue {task_queue}: {error.message}"), []
    if fresh:
        detail = f"{count(len(fresh), 'worker')} on task queue {task_queue}: {', '.join(fresh)}"
        return Check("workers", "ok", detail), fresh
    return Check("workers", "missing", f"no worker listens on task queue {task_queue}", WORKER.command("--dev")), []


def database_check(settings: Settings) -> Check:
    """Check that the database answers, and is migrated."""
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


def _without_password(message: str, url: str) -> str:
    message, password = " ".join(message.split()), urlsplit(url).password or ""
    for text in filter(None, (password, unquote(password))):
        message = message.replace(text, "…")
    return message
