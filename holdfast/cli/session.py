"""What a verb works with: settings, a way to write, and connections, each made when the verb first needs it."""

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
        as_json: Results as JSON.
        debug: Let Temporal's client log.
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
        """What to print on Ctrl-C, once it depends on what the verb has done."""
        self.environ = environ
        self._unsaid: list[str] = []
        self._as_json = as_json
        self._debug = debug
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._cleanup.aclose()

    @cached_property
    def project(self) -> "Project":
        """The environment, completed by the project's files.

        Raises:
            SettingsError: A file cannot be used.
        """
        from holdfast.config.project import read_project

        return read_project(self.environ, folder=Path.cwd(), default_root=base_folder(), runs_code=False)

    @cached_property
    def settings(self) -> "Settings":
        """The settings.

        Raises:
            SettingsError: One cannot be used.
        """
        from holdfast.config.settings import Settings

        return Settings.from_env(self.project.environ, root=self.project.root, files=self.project.files)

    @cached_property
    def output(self) -> "Output":
        """Where to write."""
        from holdfast.cli.output import Output

        return Output(as_json=self._as_json)

    @cached_property
    def _elsewhere(self) -> Path | None:
        """The state folder of another folder's stack, if that is what a client reaches from here."""
        from holdfast.cli.places import stack_elsewhere

        home = stack_elsewhere(self.project, self.settings.home)
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
        # The scripted LLM's vectors are for the embedded database alone: elsewhere, workers have an embedding model.
        scripted = self.settings.database_url is None
        return Components(
            self.settings, self.project.environ, cleanup=self._cleanup, scripted=scripted, quiet=not self._debug
        )

    async def connect(self, thread: str | None = None) -> "Threads":
        """The threads, on a connected client.

        Args:
            thread: The id that was typed; None where there is none.

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
        """A connected client; the error names every place that was looked at."""
        self._note_redirects()
        try:
            parts = self.parts
            if self._elsewhere and self.project.files:
                from holdfast.cli.places import belongs_elsewhere

                raise belongs_elsewhere(self.project, self._elsewhere)
            return await parts.client()
        except ServerUnreachable as error:
            from holdfast.cli.places import places

            raise ServerUnreachable("\n  ".join([str(error), *places(self.project, self.settings.home)])) from None

    def _note_redirects(self) -> None:
        """Note which files decide where this command goes, unless the person has read that for this folder."""
        if not (lines := self.project.redirects):
            return
        from holdfast.cli.redirects import is_new

        self._unsaid = lines
        if is_new(self.project, self.environ):
            self.say_redirects()

    def say_redirects(self) -> None:
        """Note what was left out because it has been said before: it may be why a command has failed."""
        while self._unsaid:
            self.output.note(visible(self._unsaid.pop(0)))

    def person(self, given: str | None) -> str:
        """The name of the person who decides or speaks."""
        return normalized_name(given or self.settings.by or login())

    def is_own(self, name: str) -> bool:
        """Whether a name is that of the person at this command line, by its settings or by the system."""
        return name in ("", self.settings.by, login())

    def private_key(self, given: Path | None) -> str | None:
        """The key to sign with; None to sign nothing."""
        path = given or self.settings.key
        if path is None:
            return None
        from holdfast.encryption.signing_keys import read_key, readable_by_others

        private = read_key(path)
        if readable_by_others(path):
            self.output.note(f"Others can read {path}; chmod 600 it.")
        return private

    def link(self, threads: "Threads", thread: str, run_id: str) -> str | None:
        """The page of a run in Temporal's Web UI."""
        from holdfast.client.ui_links import ui_link

        return ui_link(self.parts.ui, namespace=threads.runs.client.namespace, thread=thread, run_id=run_id)

    def note_silence(self, words: str) -> None:
        """Note, beside what history has, that no worker answered for the rest."""
        self.output.note(visible(words))

    def note_forgotten(self, thread: str) -> None:
        """Note that only the permanent record has a thread."""
        if origin := origin_of(thread):
            self.output.note(f"{visible(thread)} is the log that a reset of {visible(origin)} has set aside.")
            return
        self.output.note(
            f"Temporal does not have {visible(thread)} any more; this is from its permanent record. "
            "A message (`say`) continues a thread."
        )

    def describe_in_temporal(self, threads: "Threads", found: "WorkflowExecutionDescription") -> str:
        """What Temporal says of a thread that no worker answers for."""
        from holdfast.client.reading.runs import retrying
        from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES

        began = found.start_time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        status = found.status.name.lower() if found.status else "unknown"
        ours = {
            pair.key.name: pair.value for pair in found.typed_search_attributes if pair.key.name in SEARCH_ATTRIBUTES
        }
        known = "".join(f", {name} {value}" for name, value in ours.items())
        link = self.link(threads, found.id, found.run_id)
        words = f"Temporal says: {visible(found.id)} is {status}, since {began}{known}" + (f"\n{link}" if link else "")
        return "\n".join(
            [words, *(f"{each.activity}: attempt {each.attempt}, {each.reason}" for each in retrying(found))]
        )


def normalized_name(name: str) -> str:
    """The one spelling of a name.

    Raises:
        SettingsError: It could be mistaken for another name.
    """
    from holdfast.core.base.names import person_name

    try:
        return person_name(name)
    except ValueError as error:
        raise SettingsError(f"{error}; say who you are with --by or HOLDFAST_BY") from None


def login() -> str:
    """The login name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "unknown"
