"""Makes all checks of `doctor`, with the requirements of Holdfast and how to meet them. Never returns a secret."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.config.project import Project
from holdfast.config.settings import Settings
from holdfast.core.base.text import one_line
from holdfast.doctor.anchors import anchors_check
from holdfast.doctor.check import Check
from holdfast.doctor.endpoints import probe_endpoints, probe_llm
from holdfast.doctor.hardening import hardening
from holdfast.doctor.limited import CheckResult, Limited
from holdfast.doctor.project import (
    advice_checks,
    catalog_check,
    home_check,
    llm_check,
    namesake_check,
    not_imported,
    port_check,
    queue_check,
    settings_check,
    variables_check,
)
from holdfast.doctor.servers import database_check, temporal_checks
from holdfast.worker.takeover.registry import Offer
from holdfast.workspace.sandbox import DEFAULT, unavailable_reason


async def examine(
    settings: Settings, config: dict[str, Any], project: Project, *, limited: Limited, serves: bool = False
) -> list[Check]:
    """Make all checks but those of LLM endpoints; one that fails or hangs does not prevent the others.

    Args:
        settings: From the environment.
        config: Temporal's connection configuration (`connect_config`).
        project: The project's files and environment.
        limited: Makes the checks.
        serves: This process is a gateway: it imports no catalog for this, and its own port is taken by itself.
    """
    offered: list[Offer] = []

    async def temporal() -> list[Check]:
        checks, found = await temporal_checks(settings, config)
        offered.extend(found)
        return checks

    server = await limited.awaited("temporal", temporal())
    reached = server[0].status == "ok"
    foreign = not_imported(project, offered, settings, imports=not serves)
    ports = partial(port_check, config, reached=reached, gateway=settings.gateway_port)
    parts: list[tuple[str, Callable[[], CheckResult]]] = [
        ("installation", namesake_check),
        ("settings", partial(settings_check, project)),
        ("variables", partial(variables_check, project)),
        ("stack", partial(home_check, project, settings.home, config["target_host"], reached=reached)),
        *([] if serves else [("ports", ports)]),
        ("database", partial(database_check, settings)),
        ("anchors", partial(anchors_check, settings)),
        ("llm", partial(llm_check, settings, project, offered)),
        ("catalog", partial(catalog_check, settings, project, offered, imports=not serves)),
        ("queue", partial(queue_check, offered)),
        ("advice", partial(advice_checks, settings, foreign)),
        ("confined commands", _commands),
        ("hardening", partial(hardening, settings, config, not_imported=foreign)),
    ]
    groups = await asyncio.gather(*(limited.in_thread(name, check) for name, check in parts))
    return [check for group in (server, *groups) for check in group]


async def examine_endpoints(settings: Settings, *, limited: Limited) -> list[Check]:
    """Ask the LLM endpoints for their lists of models, with their keys: this leaves the machine, and costs nothing."""
    parts = [limited.awaited("endpoint", probe_endpoints(settings))]
    if not settings.scripted:
        parts.insert(0, limited.awaited("llm", probe_llm(settings)))
    return [check for group in await asyncio.gather(*parts) for check in group]


def _commands() -> Check:
    if reason := unavailable_reason(DEFAULT):
        fix = "optional; see docs/how-to/work-with-files.md"
        return Check("confined commands", "open", f"do not work on this machine: {one_line(reason, 300)}", fix)
    return Check("confined commands", "ok", "work on this machine")
