"""A thread, as a program holds it: read it, talk to it, control its run, fork it, export it, verify it, move it."""

from collections.abc import Sequence
from copy import copy
from importlib.util import find_spec
from pathlib import Path

from holdfast.api.controls import Controls
from holdfast.api.dialogue import log, named
from holdfast.audit.evidence.verdicts import Check, Verification, required
from holdfast.client import forks
from holdfast.client.restarts import restart
from holdfast.client.start_options import StartOptions
from holdfast.config.programs import setup_command
from holdfast.core.authority.policy import Policy
from holdfast.core.llm.blocks import Content
from holdfast.errors import SettingsError
from holdfast.portable.format.manifest import Exported


class Thread(Controls):
    """A thread. `Client.start` and `Client.thread` make it; making one asks no server.

    Reading works without a worker, from history and the permanent record; a note in the log `holdfast.client` says
    when that is what was read. Every method raises `ThreadNotFound` if there is no such thread, and
    `ServerUnreachable` if Temporal does not answer.
    """

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    def _beside(self, thread: str) -> "Thread":
        other = copy(self)
        other.id = thread
        return other

    async def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,
        say: Content | None = None,
        edit_message: Content | None = None,
        agent: str | None = None,
        llm: str = "",
        policy: Policy | None = None,
        workspace: str | Path | None = None,
        by: str | None = None,
        by_proven: bool = False,
    ) -> "Thread":
        """Fork the thread: a new one that begins with the same events, byte for byte. This one does not change.

        Effects of the fork ask a person first until an approver lifts that: `lift(0)` on the fork.

        Args:
            at: The position of the last event that the fork has; None for the last.
            id: The fork's id: the same fork again returns the one that there is. None for a new id.
            say: A message that the fork begins with; None for none.
            edit_message: A message in place of the last one of a person up to `at`; None for none.
            agent: Another agent of the catalog, with its LLM and policy; None for the thread's.
            llm: The LLM of its agents, at the worker's endpoint; empty for their own.
            policy: A policy that judges the fork's calls beside its agent's: the strictest verdict counts, and the
                agent's own policy says who decides. None for no other.
            workspace: A folder on the worker's machine; None for one of the fork's own.
            by: Who forks it; None for the client's `by`.
            by_proven: This program has authenticated that person; as with `Client.start`.

        Raises:
            PositionInvalid: There is no such event, or no message that could be edited.
            ThreadExists: There is another thread of that id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The message cannot be sent, or there are two.
            FleetKeyMissing: A fork needs the fleet key.
            EventsMissing: The thread's events can no longer be read.
        """
        done = await forks.fork(
            self._threads,
            self.id,
            at=at,
            id=id,
            say=say,
            edit=edit_message,
            agent=agent,
            llm=llm,
            policies=() if policy is None else (policy,),
            workspace=None if workspace is None else str(workspace),
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
        )
        return self._beside(done.thread)

    async def restart(
        self,
        *,
        id: str | None = None,
        task: Content | None = None,
        agent: str | None = None,
        workspace: str | Path | None = None,
        by: str | None = None,
        by_proven: bool = False,
    ) -> "Thread":
        """Start the thread's task again in a new thread, with a clean slate. This one keeps its record.

        Args:
            id: The new thread's id; None for a new one.
            task: Another task; None for the same.
            agent: Another agent; None for the same.
            workspace: A folder on the worker's machine; None for one of the new thread's own.
            by: Who gives the task; None for the client's `by`, or else the same person, as a claim.
            by_proven: This program has authenticated that person; as with `Client.start`.

        Raises:
            ThreadExists: There is a thread of that id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The task is empty or too long.
            EventsMissing: The thread's first events can no longer be read.
        """
        options = StartOptions(
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
        )
        return self._beside((await restart(self._threads, self.id, options, id=id, task=task)).thread)

    async def export(
        self,
        path: Path | str,
        *,
        redact: bool = False,
        artifacts: bool = True,
        subagents: bool = True,
        key: Path | str | None = None,
        anchors: Sequence[Path | str] | None = None,
    ) -> Exported:
        """Write the thread to a new file that verifies offline, as `holdfast export` does.

        An open run is exported as far as it is recorded. The ledger and the artifacts come from the database that the
        client knows; `left_out` says which of them the file does not have, and `unread` which sub-agents' logs could
        not be read. `seals` says how many seals of nodes it has.

        Args:
            path: The file. An existing one is never overwritten.
            redact: Drop bodies and artifacts, and keep digests.
            artifacts: Whether the file is to have the artifacts.
            subagents: Whether the file is to have the logs of the sub-agents, of theirs, and so on.
            key: The file of the private key to sign with; None for the client's `key`. Without one, the file is not
                signed, and anybody could have made it.
            anchors: Folders and files with seals of the thread, which the file is to have; None for those that
                `HOLDFAST_ANCHORS` names and that can be read here, which excludes webhooks; empty for none.

        Raises:
            ExportFailed: The file exists, cannot be written or would be too large; or the id is that of a loop.
            EventsMissing: Some of the thread's events can no longer be read.
            ArtifactNotFound: The store lacks an artifact that an event refers to.
            SettingsError: The key or an anchor cannot be read, or a package is missing.
        """
        _require_cli("exporting", "psycopg", "securesystemslib")
        from holdfast.audit.evidence.anchors import Anchors
        from holdfast.portable.export import export_thread

        places = self._places(anchors)
        return await export_thread(
            self._threads,
            self.id,
            Path(path),
            evidence=await self._evidence() if self._evidence else None,
            private=self._private(key),
            redact=redact,
            artifacts=artifacts,
            anchors=Anchors(places) if places else None,
            subagents=subagents,
            note=log.info,
        )

    async def verify(
        self,
        *,
        keys: Path | str | None = None,
        anchors: Sequence[Path | str] | None = None,
        nodes: Sequence[str] = (),
        require: Sequence[Check] = (),
    ) -> Verification:
        """Check that the thread is what was recorded, as `holdfast verify` does.

        The answer is in `verdict`: `proven`, `altered`, or `not_proven`, where nothing that could be checked is wrong,
        and `unchecked` says what could not be. The seals of Temporal's histories are checked if the client has the
        fleet key.

        Args:
            keys: A file with people, gateways and their keys, as a policy lists them; None to trust the log's own.
            anchors: Where workers have sealed the record; None for those of `HOLDFAST_ANCHORS` that can be read here.
            nodes: Public keys of the nodes whose seals count; empty for all nodes.
            require: What must have been checked; without one of these, the answer is not `proven`.

        Raises:
            SettingsError: A file or an anchor cannot be read, or a package is missing.
        """
        _require_cli("verifying", "psycopg")
        from holdfast.audit.evidence.anchors import Anchors
        from holdfast.audit.evidence.verify import verify
        from holdfast.config.policy_file import load_policy
        from holdfast.core.authority.signatures import check_key

        try:
            known = {check_key(node): None for node in nodes} or None
        except ValueError as error:
            raise SettingsError(f"nodes: {error}") from None
        trusted, places = load_policy(Path(keys)) if keys else None, self._places(anchors)
        sealed = Anchors(places, known) if places else None
        evidence = await self._evidence() if self._evidence else None
        found = await verify(self._threads, self.id, evidence=evidence, trusted=trusted, anchors=sealed)
        return required(found, require)

    def _places(self, anchors: Sequence[Path | str] | None) -> Sequence[Path]:
        """Where seals are: in these anchors; with None, in those of the settings."""
        from holdfast.audit.anchors.setting import check_anchor_path

        own = self._anchors if anchors is None else None
        return own() if own else [check_anchor_path(Path(place)) for place in anchors or ()]

    async def move(
        self,
        path: Path | str,
        *,
        to: str = "",
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> Exported:
        """End the thread here as `moved`, and write it to a new file that `Client.import_thread` continues elsewhere.

        Tools under way end first. Repeat it where it fails: a thread that has been moved is only written.

        Args:
            path: The file. An existing one is never overwritten.
            to: The id of the only place that may import it: `Client.place` there; empty for any.
            by: Who moves it; None for the client's `by`.
            reason: Why; it is in the log.
            key: As for `export`.

        Raises:
            NotAccepted: The run stays here: it is a sub-agent's or a loop's, or has sub-agents that are open.
            NoWorker: No worker answers.
            ExportFailed: The file exists, or would lack the ledger or the artifacts.
            SettingsError: The key cannot be read, nothing says who moves it, or a package is missing.
        """
        _require_cli("moving", "psycopg", "securesystemslib")
        from holdfast.portable.moving import move_thread

        return await move_thread(
            self._threads,
            self.id,
            Path(path),
            by=self._person(by),
            reason=reason,
            to=to,
            evidence=await self._evidence() if self._evidence else None,
            private=self._private(key),
            note=log.info,
        )


def _require_cli(doing: str, *packages: str) -> None:
    """Check that packages of the command line are installed.

    Raises:
        SettingsError: One is missing.
    """
    if not all(find_spec(package) for package in packages):
        raise SettingsError(f"{doing} needs packages of the command line: {setup_command('cli')}")
