"""Agents on a program's worker: activities and interceptors that are there before the worker is open.

A worker is made with its activities and interceptors. Their dependencies (database, LLM, resources) can be opened only
when it runs, and are imported only then. So each activity stands in for one of the same name, and
Holdfast's interceptors apply to Holdfast's activities alone, not to the program's.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    Interceptor,
    WorkflowInterceptorClassInput,
)

from holdfast.client.connect import ensure_search_attributes
from holdfast.composition.components import Components
from holdfast.composition.observers import NO_OBSERVERS, Observers
from holdfast.config.running_stacks import is_running
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack, read_stack
from holdfast.core.agents.catalog import Catalog
from holdfast.core.loop.activities import LOOP_ACTIVITIES
from holdfast.core.run.contracts.table import ACTIVITIES, Activity
from holdfast.encryption.fleet_keys import required_seals
from holdfast.endpoints.script import Script

if TYPE_CHECKING:
    from holdfast.activities.assembly import Assembly

_TABLE: tuple[Activity[Any, Any, Any], ...] = (*ACTIVITIES.values(), *LOOP_ACTIVITIES)

log = logging.getLogger("holdfast.plugin")

NAMES = frozenset(each.name for each in _TABLE)
"""The names of Holdfast's activities."""


class Hosted:
    """What Holdfast adds to one worker.

    Args:
        catalog: The agents and tools that the worker offers.
        settings: From `environ`.
        environ: The environment, for Temporal's own settings and the secrets of tools.
        script: Answers in place of an LLM if the settings name none; None to require one.
        observers: The program's own telemetry.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        environ: Mapping[str, str],
        script: Script | None = None,
        observers: Observers = NO_OBSERVERS,
    ) -> None:
        self.catalog = catalog
        self._settings = settings
        self._environ = environ
        self._script = script
        self._observers = observers
        self._implementations: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.activities = tuple(self._stand_in(each) for each in _TABLE)
        self.interceptor = _Interceptors()

    @asynccontextmanager
    async def open(self, client: Client) -> AsyncIterator[None]:
        """Open what the worker needs, for a block.

        Args:
            client: The worker's client.

        Raises:
            HoldfastError: Something is missing or does not answer; the message says what to do.
        """
        from holdfast.hosting.assembly import assembled
        from holdfast.hosting.serving import secrets_of
        from holdfast.mcp.pinning import lock_folder, with_pinned_tools
        from holdfast.storage.pool import WORKER_CONNECTIONS

        catalog = with_pinned_tools(self.catalog, lock_folder(self.catalog))
        async with AsyncExitStack() as cleanup:
            parts = Components(
                self._settings,
                self._environ,
                cleanup=cleanup,
                stack=self._stack_of(client),
                connected=client,
                catalog=catalog,
                script=self._script,
                scripted=self._script is not None,
                connections=WORKER_CONNECTIONS,
                say=log.info,
                observers=self._observers,
            )
            parts.require_database()
            required_seals(parts.settings, parts.config)
            await ensure_search_attributes(client)
            secrets = secrets_of(parts, catalog, self._environ)
            assembly = await cleanup.enter_async_context(assembled(parts, catalog, secrets))
            self._bind(assembly)
            try:
                yield
            finally:
                self._implementations = {}

    def _stack_of(self, client: Client) -> Stack | None:
        """Return the embedded stack of the state folder, if the client is connected to it: it has a database, too."""
        home = self._settings.home
        stack = read_stack(home)
        address = client.service_client.config.target_host
        if stack is None or not stack.postgres_pid or stack.temporal_address != address:
            return None
        return stack if is_running(home, stack) else None

    def _bind(self, assembly: "Assembly") -> None:
        for function in assembly.activities:
            name = activity._Definition.must_from_callable(function).name
            assert name in NAMES
            self._implementations[name] = function
        self.interceptor.bind(assembly)

    def _stand_in(self, spec: Activity[Any, Any, Any]) -> Callable[..., Awaitable[Any]]:
        async def run(request: Any) -> Any:
            return await self._implementations[spec.name](request)

        run.__annotations__ = {"request": spec.request, "return": spec.answer}
        return activity.defn(name=spec.name)(run)


class _Interceptors(Interceptor):
    """The interceptors of the assembly, around Holdfast's activities alone."""

    def __init__(self) -> None:
        self._own: tuple[Interceptor, ...] = ()
        self._workflows: WorkflowInterceptorClassInput | None = None

    def bind(self, assembly: "Assembly") -> None:
        """Use the interceptors of an opened assembly."""
        self._own = assembly.interceptors
        for each in self._own:
            if self._workflows is not None:
                added = each.workflow_interceptor_class(self._workflows)
                assert added is None, "an interceptor of workflows would intercept the program's, too"

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        """Keep the functions that workflows can call, to which the assembly's interceptors add theirs."""
        self._workflows = input

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap one of Holdfast's activities."""
        if activity.info().activity_type in NAMES:
            for each in reversed(self._own):
                next = each.intercept_activity(next)
        return next
