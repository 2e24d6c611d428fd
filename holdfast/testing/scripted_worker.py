"""A worker with a scripted LLM, for the length of a block."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from temporalio.client import Client

from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.required_secrets import read_secrets
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.script import Script, Unparsed
from holdfast.endpoints.scripted_server import ScriptedLLM

LEAVE = 10.0
"""Seconds after which a worker that does not end is abandoned."""


@asynccontextmanager
async def scripted_worker(
    client: Client,
    catalog: Catalog,
    script: Script | Unparsed,
    *,
    task_queue: str,
    secrets: Secrets | None = None,
    **options: Any,
) -> AsyncIterator[ScriptedLLM]:
    """Run a worker with a scripted LLM and the catalog's resources for a block; yield that LLM.

    Args:
        client: The worker's client, with a fleet key. A client allows one worker per task queue.
        catalog: The worker's agents and tools.
        script: The LLM's replies.
        task_queue: The worker's task queue.
        secrets: The secrets that tools and resources declare; None to read them from the environment.
        options: More arguments of `holdfast.hosting.assembly.build_worker`, such as its stores.
    """
    from holdfast.worker.construction import running
    from holdfast.worker.resources import open_resources

    # Not a plain import: in the ladder of packages, this one is below the worker.
    hosting: Any = import_module("holdfast.hosting.assembly")
    secrets = read_secrets(catalog.secret_users, os.environ) if secrets is None else secrets
    with ScriptedLLM(script) as llm:
        async with llm.client() as endpoint, open_resources(catalog, secrets) as resources:
            built = hosting.build_worker(
                client,
                task_queue=task_queue,
                catalog=catalog,
                secrets=secrets,
                resources=resources,
                # No deadlock detection: on a busy machine, or at a breakpoint, two seconds pass easily.
                **{"llm": endpoint, "default_llm": "scripted", "debug_mode": True, **options},
            )
            async with running(built, within=LEAVE):
                yield llm
