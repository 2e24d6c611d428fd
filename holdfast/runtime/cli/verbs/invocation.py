"""What every verb has: settings, a way to write, and connections that are made when they are needed."""

import getpass
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionDescription
from temporalio.runtime import Runtime, TelemetryConfig

from holdfast.base.names import person_name
from holdfast.errors import SettingsError
from holdfast.runtime.cli.output import Output
from holdfast.runtime.cli.text import visible
from holdfast.runtime.client.connect import connect, connect_config
from holdfast.runtime.client.start_options import check_thread_id
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.client.ui_links import ui_base, ui_link
from holdfast.runtime.config.settings import Settings
from holdfast.runtime.config.stack_file import read_stack
from holdfast.runtime.encryption.codec import EncryptionCodec
from holdfast.runtime.encryption.fleet_keys import fleet_seals
from holdfast.runtime.encryption.signing_keys import read_key, readable_by_others
from holdfast.runtime.reading.record import LazyRecord, Opener
from holdfast.runtime.reading.runs import retrying
from holdfast.stores import origin_of
from holdfast.temporal.search_attributes import SEARCH_ATTRIBUTES


class Invocation:
    """One invocation of the CLI.

    Args:
        settings: From the environment.
        environ: The environment, for Temporal's own settings.
        output: Where to write.
        root: The folder of `starter.py`.
        debug: Let Temporal's client log.
        record: Opens the permanent record at a database's URL.
        cleanup: Closes what was opened.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        output: Output,
        root: Path,
        debug: bool,
        record: Opener,
        cleanup: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._output = output
        self._root = root
        self._debug = debug
        self._config = connect_config(environ, home=settings.home)
        url = self._database_url()
        self._record = LazyRecord(record, url, cleanup, artifacts=settings.artifacts) if url else None

    async def _connect(self, thread: str | None = None) -> Threads:
        if thread is not None:
            check_thread_id(thread)
        settings = self._settings
        client = await connect(
            self._config_with_runtime(),
            codec=EncryptionCodec.of(settings.encryption_keys),
            seals=fleet_seals(settings, self._config),
        )
        return Threads(
            client, task_queue=settings.task_queue, answer_within=settings.answer_seconds, record=self._record
        )

    def _name(self, given: str | None) -> str:
        """Who decides or speaks."""
        return self._spelt(given or self._settings.by or login())

    def _spelt(self, name: str) -> str:
        """The one spelling of a name.

        Raises:
            SettingsError: It could be taken for another's.
        """
        try:
            return person_name(name)
        except ValueError as error:
            raise SettingsError(f"{error}; say who you are with --by or HOLDFAST_BY") from None

    def _is_own(self, name: str) -> bool:
        """Whether a name is that of the person at this command line, by its settings or by the system."""
        return name in ("", self._settings.by, login())

    def _private_key(self, given: Path | None) -> str | None:
        """The key to sign with; None to sign nothing."""
        path = given or self._settings.key
        if path is None:
            return None
        private = read_key(path)
        if readable_by_others(path):
            self._output.note(f"Others can read {path}; chmod 600 it.")
        return private

    def _database_url(self) -> str | None:
        """Where the permanent record is: the embedded stack's is that of the embedded server's threads alone."""
        if self._settings.database_url:
            return self._settings.database_url
        stack = read_stack(self._settings.home)
        running = stack and stack.postgres_pid and stack.temporal_address == self._config["target_host"]
        return stack.database_url if stack and running else None

    def _config_with_runtime(self) -> dict[str, Any]:
        return {**self._config, "runtime": self._runtime()}

    def _runtime(self) -> Runtime | None:
        # Temporal's SDK would tell of each retry on stderr, in its own words; we say what came of it.
        return None if self._debug else Runtime(telemetry=TelemetryConfig(logging=None))

    def _link(self, threads: Threads, thread: str, run_id: str) -> str | None:
        base = ui_base(self._config, self._settings)
        return ui_link(base, namespace=threads.runs.client.namespace, thread=thread, run_id=run_id)

    def _silent(self, words: str) -> None:
        """Say beside what is settled that nobody answers for the rest."""
        self._output.note(visible(words))

    def _forgotten(self, thread: str) -> None:
        """Say that only the permanent record has a thread."""
        if origin := origin_of(thread):
            self._output.note(f"{visible(thread)} is what a reset has left behind of {visible(origin)}.")
            return
        self._output.note(
            f"Temporal does not have {visible(thread)} any more; this is from its permanent record. "
            "A message (`say`) lets it go on."
        )

    def _from_temporal(self, threads: Threads, found: WorkflowExecutionDescription) -> str:
        """What is known of a thread that no worker answers for."""
        began = found.start_time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        status = found.status.name.lower() if found.status else "unknown"
        ours = {
            pair.key.name: pair.value for pair in found.typed_search_attributes if pair.key.name in SEARCH_ATTRIBUTES
        }
        known = "".join(f", {name} {value}" for name, value in ours.items())
        link = self._link(threads, found.id, found.run_id)
        words = f"Temporal says: {visible(found.id)} is {status}, since {began}{known}" + (f"\n{link}" if link else "")
        return "\n".join(
            [words, *(f"{each.activity}: attempt {each.attempt}, {each.reason}" for each in retrying(found))]
        )


def login() -> str:
    """The login name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "unknown"
