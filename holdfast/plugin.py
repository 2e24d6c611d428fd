"""HoldfastPlugin: agents on a worker that a program already has.

    client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin(catalog)])
    worker = Worker(client, task_queue="orders", workflows=[OrderWorkflow], activities=[charge])

The worker's task queue, settings, interceptors and sandbox stay as they are, and so does all that its own workflows
send and receive.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from temporalio import activity, workflow
from temporalio.client import ClientConfig, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    Replayer,
    ReplayerConfig,
    Worker,
    WorkerConfig,
    WorkflowReplayResult,
)

from holdfast.composition.observers import Observers, OnEvent
from holdfast.config.extras import is_installed
from holdfast.config.policy_file import load_policy
from holdfast.config.programs import base_folder, setup_command
from holdfast.config.settings import Settings
from holdfast.core.agents.catalog import Catalog
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW_TYPES
from holdfast.core.temporal.composed import compose, own_converter
from holdfast.encryption.codec import EncryptionCodec, build_converter
from holdfast.encryption.fleet_keys import fleet_seals
from holdfast.endpoints.script import Script
from holdfast.errors import SettingsError
from holdfast.hosting.called import NAMES as CALLED_NAMES
from holdfast.hosting.called import CalledThreads
from holdfast.hosting.costs import costs_of
from holdfast.hosting.hosted import NAMES, Hosted
from holdfast.hosting.queues import offer_of, serving_queue
from holdfast.worker.hosted_runs import HostedRuns, host, hosted_runs, is_hosting
from holdfast.workflows import WORKFLOWS

if TYPE_CHECKING:  # optional packages: a program that passes a provider has them
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("holdfast.plugin")

_NO_NAMESPACE = "ReplayNamespace"
"""The SDK's namespace of a replayer that was given none."""


class HoldfastPlugin(SimplePlugin):
    """Adds agents to the workers of a Temporal client. Pass it to the client, as the last plugin: workers inherit it.

    With a catalog, the client's workers run its agents. Without one, the program's workflows and clients can start
    and read runs that other workers carry out.

    Args:
        catalog: The agents and tools; None for none.
        task_queue: The only task queue whose workers run agents; None for all of the client's workers.
        script: Answers in place of an LLM if no endpoint is configured; None to require one.
        environ: The variables that configure Holdfast, as for `holdfast worker`; None for the process's environment.
            `HOLDFAST_FLEET_KEYS` and `DATABASE_URL` are required to run agents, except beside an embedded stack, which
            has its own.
        tracer_provider: As for `holdfast.running`, and so are `meter_provider` and `on_event`.
        meter_provider: See `tracer_provider`.
        on_event: See `tracer_provider`.

    Raises:
        SettingsError: A setting cannot be used, or the packages that run agents are missing.
        PolicyError: The policy file that the settings name cannot be used.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        *,
        task_queue: str | None = None,
        script: Script | None = None,
        environ: Mapping[str, str] | None = None,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        on_event: OnEvent | None = None,
    ) -> None:
        super().__init__("holdfast.HoldfastPlugin")
        if catalog is not None and not is_installed("worker"):
            raise SettingsError(f"the packages that run agents are missing: {setup_command('worker')}")
        self._environ = dict(os.environ if environ is None else environ)
        self._settings = Settings.from_env(self._environ, root=base_folder())
        policy = self._settings.policy
        self._catalog = catalog.governed_by(load_policy(policy)) if catalog and policy else catalog
        self._task_queue = task_queue
        self._script = script
        self._observers = Observers(tracer_provider, meter_provider, on_event)
        self._called: WeakKeyDictionary[HostedRuns, CalledThreads] = WeakKeyDictionary()
        self._hosted: WeakKeyDictionary[HostedRuns, Hosted] = WeakKeyDictionary()

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Compose the client's data converter with Holdfast's."""
        address = config["service_client"].config.target_host
        seals = fleet_seals(self._settings, {"target_host": address})
        config["data_converter"] = self._composed(config["data_converter"], seals)
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Let a replayer replay Holdfast's runs, and workflows that start some.

        Seals and encryption are bound to the namespace. Without the replayer's `namespace`, seals are not verified, so
        a `PersonInput` proves nobody.

        Raises:
            SettingsError: The payloads are encrypted, and the replayer has no namespace.
        """
        placed = config.get("namespace", _NO_NAMESPACE) != _NO_NAMESPACE
        if self._settings.encryption_keys and not placed:
            raise SettingsError(
                "HOLDFAST_ENCRYPTION_KEYS is set, and an encrypted payload is bound to its namespace: pass the "
                "namespace of the histories, Replayer(…, namespace=…)"
            )
        known = placed and self._settings.fleet_keys
        seals = fleet_seals(self._settings, {"target_host": ""}) if known else FleetKeys()
        converter = self._composed(config.get("data_converter") or DataConverter.default, seals)
        config["data_converter"] = converter
        config["workflows"] = [*_without_ours(config.get("workflows") or ()), *WORKFLOWS]
        config["workflow_runner"] = host(config["workflow_runner"], _required_own(converter))
        return config

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add Holdfast's workflows, activities and interceptors to a worker."""
        own = _required_own(config["client"].data_converter)
        if is_hosting(config["workflow_runner"]):
            raise SettingsError(
                f"the worker of task queue {config['task_queue']!r} has HoldfastPlugin twice, and one task queue can "
                "have one catalog only: pass one plugin, to the client"
            )
        _refuse_same_names(config)
        config["workflow_runner"] = runner = host(config["workflow_runner"], own)
        called = self._called[runner.runs] = CalledThreads(self._settings, self._environ)
        config["activities"] = [*(config.get("activities") or ()), *called.activities]
        if self._catalog is None or self._task_queue not in (None, config["task_queue"]):
            return config
        for cost in costs_of(config):
            log.warning("worker of task queue %s: %s", config["task_queue"], cost)
        hosted = self._hosted[runner.runs] = Hosted(
            self._catalog, self._settings, self._environ, self._script, self._observers
        )
        config["workflows"] = [*(config.get("workflows") or ()), *WORKFLOWS]
        config["activities"] = [*config["activities"], *hosted.activities]
        config["interceptors"] = [*(config.get("interceptors") or ()), hosted.interceptor]
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Open what the agents need, for as long as the worker runs."""
        runs = hosted_runs(worker)
        if runs is None:
            raise SettingsError(
                f"another plugin has replaced the workflow runner of the worker of task queue {worker.task_queue!r}: "
                "make HoldfastPlugin the last plugin"
            )
        async with AsyncExitStack() as opened:
            try:
                await self._open(worker, runs, opened)
            except BaseException:
                # Without this mark, which the SDK itself sets if a start fails, `async with worker` would wait forever.
                worker._shutdown_complete_event.set()
                raise
            await next(worker)

    async def _open(self, worker: Worker, runs: HostedRuns, opened: AsyncExitStack) -> None:
        """Open what a worker's workflows and agents need.

        Raises:
            HoldfastError: Something is missing or does not answer, or the task queue has another catalog.
        """
        await opened.enter_async_context(self._called[runs].open(worker.client, worker.task_queue))
        if hosted := self._hosted.get(runs):
            runs.guard(worker)
            offer = offer_of(self._settings, hosted.catalog, "HoldfastPlugin")
            opened.enter_context(serving_queue(worker.client, worker.task_queue, offer))
            await opened.enter_async_context(hosted.open(worker.client))

    @asynccontextmanager
    async def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AsyncIterator[AsyncIterator[WorkflowReplayResult]]:
        """Replay: nothing needs to be open."""
        async with next(replayer, histories) as results:
            yield results

    def _composed(self, converter: DataConverter, seals: FleetKeys) -> DataConverter:
        if own_converter(converter):
            return converter  # the client is Holdfast's own, or has been composed
        codec = EncryptionCodec.of(self._settings.encryption_keys)
        if converter.payload_codec and not codec.encrypts:
            log.warning(
                "the client's payload codec does not encode runs of agents, which other processes read without it: to "
                "encrypt them, set HOLDFAST_ENCRYPTION_KEYS"
            )
        return compose(converter, build_converter(codec, seals))


def _required_own(converter: DataConverter) -> DataConverter:
    """Return Holdfast's data converter within a client's.

    Raises:
        SettingsError: There is none.
    """
    if (own := own_converter(converter)) is None:
        raise SettingsError(
            "the client of this worker cannot encode Holdfast's values: pass HoldfastPlugin to the client, "
            "Client.connect(…, plugins=[…, HoldfastPlugin(catalog)]), as the last plugin; its workers inherit it"
        )
    return own


def _refuse_same_names(config: WorkerConfig) -> None:
    """Refuse a worker whose own workflows or activities have the names of Holdfast's, which histories contain.

    Raises:
        SettingsError: It has such names.
    """
    activities = {activity._Definition.must_from_callable(each).name for each in config.get("activities") or ()}
    workflows = {workflow._Definition.must_from_class(each).name for each in config.get("workflows") or ()}
    taken = sorted(name for name in activities | workflows if name and name in NAMES | CALLED_NAMES | WORKFLOW_TYPES)
    if taken:
        raise SettingsError(
            f"the worker of task queue {config['task_queue']!r} and Holdfast both have {', '.join(taken)}: rename the "
            "worker's own, or run the agents on a task queue of their own, with HoldfastPlugin(catalog, task_queue=…)"
        )


def _without_ours(workflows: Iterable[type]) -> list[type]:
    return [each for each in workflows if each not in WORKFLOWS]
