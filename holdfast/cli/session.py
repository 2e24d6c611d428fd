"""The session of a verb: settings, output and connections, each created when the verb first needs it."""

import getpass
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.cli.text import visible
from holdfast.config.programs import base_folder
from holdfast.core.stores import origin_of
from holdfast.errors import ServerUnreachable, SettingsError

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription

    from holdfast.cli.output import Output
    from holdfast.client.threads import Threads
    from holdfast.composition.components import Components
    from holdfast.config.project import Project
    from holdfast.config.settings import Settings


class Session:
    """One invocation of the command line.

    Args:
        environ: The environment.
        workflows: Loads today's workflow classes.
        as_json: Write results as JSON.
        debug: Enable the logs of Temporal's client.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        workflows: Callable[[], Sequence[type]],
        as_json: bool,
        debug: bool,
    ) -> None:
        self.workflows = workflows
        self.farewell = ""
        """The message on Ctrl-C, once it depends on the verb's progress."""
        self.environ = environ
        self._unprinted_redirects: list[str] = []
        self._as_json = as_json
        self._debug = debug
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._cleanup.aclose()

    @cached_property
    def project(self) -> "Project":
        """The environment, completed from the project's files.

        Raises:
            SettingsError: A file cannot be used.
        """
        from holdfast.config.project import read_project

        return read_project(self.environ, folder=Path.cwd(), default_root=base_folder(), runs_code=False)

    @cached_property
    def settings(self) -> "Settings":
        """The settings.

        Raises:
            SettingsError: A setting cannot be used.
        """
        from holdfast.config.settings import Settings

        return Settings.from_env(self.project.environ, root=self.project.root, files=self.project.files)

    @cached_property
    def output(self) -> "Output":
        """The output streams."""
        from holdfast.cli.output import Output

        return Output(as_json=self._as_json)

    @cached_property
    def _elsewhere(self) -> Path | None:
        """The state folder of another folder's stack, if a client would reach that stack from here."""
        from holdfast.cli.places import stack_of_other_folder

        home = stack_of_other_folder(self.project, self.settings.home)
        if home is None:
            return None
        from holdfast.client.connect import connect_config
        from holdfast.config.stack_file import DEFAULT_ADDRESS

        # Temporal's configuration file may name another server.
        config = connect_config(self.project.environ, home=self.settings.home)
        return home if config["target_host"] == DEFAULT_ADDRESS else None

    @cached_property
    def parts(self) -> "Components":
        """Client, stores and the rest."""
        from holdfast.composition.components import Components

        if self._elsewhere and not self.project.files:
            self.settings = self.settings.model_copy(update={"home": self._elsewhere})
            self.output.note(f"Using the stack of {self._elsewhere}.")
        # The scripted LLM's vectors suit only the embedded database: elsewhere, workers have an embedding model.
        scripted = self.settings.database_url is None
        return Components(
            self.settings, self.project.environ, cleanup=self._cleanup, scripted=scripted, quiet=not self._debug
        )

    async def connect(self, thread: str | None = None) -> "Threads":
        """Return the threads, on a connected client.

        Args:
            thread: The thread id argument; None if the verb has none.

        Raises:
            ThreadIdInvalid: It cannot be a thread id.
            ServerUnreachable: No server answers.
        """
        if thread is not None:
            from holdfast.client.start_options import check_thread_id

            check_thread_id(thread)
        client = await self._client()
        settings = self.settings
        from holdfast.client.threads import Threads

        return Threads(
            client,
            task_queue=settings.task_queue,
            answer_within=settings.answer_seconds,
            record=self.parts.threads(),
        )

    async def _client(self) -> "Client":
        """Return a connected client; the error names every source that was searched for a server."""
        self._note_redirects()
        try:
            parts = self.parts
            if self._elsewhere and self.project.files:
                from holdfast.cli.places import other_stack_error

                raise other_stack_error(self.project, self._elsewhere)
            return await parts.client()
        except ServerUnreachable as error:
            from holdfast.cli.places import searched_sources

            raise ServerUnreachable(
                "\n  ".join([str(error), *searched_sources(self.project, self.settings.home)])
            ) from None

    def _note_redirects(self) -> None:
        """Print which files select the server of this command, unless that was printed for this folder before."""
        if not (lines := self.project.redirects):
            return
        from holdfast.cli.redirects import is_new

        self._unprinted_redirects = lines
        if is_new(self.project, self.environ):
            self.print_redirects()

    def print_redirects(self) -> None:
        """Print the redirects that were left out because they are not new: they may explain a failure."""
        while self._unprinted_redirects:
            self.output.note(visible(self._unprinted_redirects.pop(0)))

    def person(self, name: str | None) -> str:
        """Return the name of the person who decides or speaks: the option, the setting, or the login name."""
        return normalized_name(name or self.settings.by or login())

    def is_own(self, name: str) -> bool:
        """Whether a name is that of the person at this command line, by the settings or by the login."""
        return name in ("", self.settings.by, login())

    def private_key(self, option: Path | None) -> str | None:
        """Return the key to sign with; None to sign nothing."""
        path = option or self.settings.key
        if path is None:
            return None
        from holdfast.encryption.signing_keys import read_key, readable_by_others

        private = read_key(path)
        if readable_by_others(path):
            self.output.note(f"Others can read {path}; chmod 600 it.")
        return private

    def link(self, threads: "Threads", thread: str, run_id: str) -> str | None:
        """Return the address of a run in Temporal's Web UI."""
        from holdfast.client.ui_links import ui_link

        return ui_link(self.parts.ui, namespace=threads.runs.client.namespace, thread=thread, run_id=run_id)

    def note_silence(self, message: str) -> None:
        """Print that no worker answered, so that the result comes from the history alone."""
        self.output.note(visible(message))

    def note_forgotten(self, thread: str) -> None:
        """Print that only the permanent record has a thread."""
        if origin := origin_of(thread):
            self.output.note(f"{visible(thread)} is an archived branch of {visible(origin)}: a reset abandoned it.")
            return
        self.output.note(
            f"Temporal does not have {visible(thread)} any more; this is from its permanent record. "
            "A message (`say`) continues a thread."
        )

    def describe_in_temporal(self, threads: "Threads", description: "WorkflowExecutionDescription") -> str:
        """Return Temporal's description of a thread that has no worker."""
        from holdfast.client.reading.runs import retrying
        from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES

        thread, began = visible(description.id), description.start_time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        status = description.status.name.lower() if description.status else "unknown"
        pairs = [pair for pair in description.typed_search_attributes if pair.key.name in SEARCH_ATTRIBUTES]
        attributes = "".join(f", {pair.key.name} {pair.value}" for pair in pairs)
        link = self.link(threads, description.id, description.run_id)
        head = f"Temporal says: {thread} is {status}, since {began}{attributes}" + (f"\n{link}" if link else "")
        return "\n".join(
            [head, *(f"{each.activity}: attempt {each.attempt}, {each.reason}" for each in retrying(description))]
        )


def normalized_name(name: str) -> str:
    """Return a person's name in its canonical spelling.

    Raises:
        SettingsError: The name could be mistaken for another one.
    """
    from holdfast.core.base.names import person_name

    try:
        return person_name(name)
    except ValueError as error:
        raise SettingsError(f"{error}; say who you are with --by or HOLDFAST_BY") from None


def login() -> str:
    """Return the login name; `unknown` if there is none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "unknown"
