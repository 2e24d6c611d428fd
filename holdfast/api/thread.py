"""The public `Thread`: read it, send it messages, and control, fork, export, verify or move it."""

from collections.abc import Mapping, Sequence
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from holdfast.api.controls import Controls
from holdfast.api.dialogue import checked_name, log
from holdfast.audit.evidence.verdicts import Check, Verification, required
from holdfast.client import forks
from holdfast.client.restarts import restart
from holdfast.client.start_options import StartOptions
from holdfast.config.programs import setup_command
from holdfast.core.authority.policy import Policy
from holdfast.core.llm.blocks import Content
from holdfast.core.tools.typed_context import context_values
from holdfast.errors import SettingsError
from holdfast.portable.format.manifest import Exported

if TYPE_CHECKING:
    from holdfast.audit.evidence.anchors import Anchors


class Thread(Controls):
    """A thread. `Client.start` and `Client.thread` create it; creating one contacts no server.

    Without a worker, a thread is read from history and the permanent record, and the logger `holdfast.client` says so.
    Every method raises `ThreadNotFound` if there is no such thread, and `ServerUnreachable` if Temporal does not
    respond.
    """

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    def _sibling(self, thread: str) -> "Thread":
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
        context: BaseModel | Mapping[str, object] | None = None,
    ) -> "Thread":
        """Fork the thread: a new one that begins with the same events, byte for byte. This one does not change.

        Effects of the fork require approval until an approver removes that constraint: `lift(0)` on the fork.

        Args:
            at: The position of the last event that the fork shares; None for the thread's last event.
            id: The fork's id; repeating the fork returns the existing thread. None for a new id.
            say: A message that the fork begins with; None for none.
            edit_message: A message that replaces the last one from a person up to `at`; None for none.
            agent: Another agent of the catalog, with its LLM and policy; None for the thread's agent.
            llm: The LLM of its agents, at the worker's endpoint; empty for their own.
            policy: A policy that judges the fork's calls in addition to the agent's: the strictest verdict applies, and
                each policy that requires approval has to be satisfied by its own approvers. None for no additional
                policy.
            workspace: A folder on the worker's machine; None for the fork's own folder.
            by: The person who forks it; None for the client's `by`.
            by_proven: Whether this program has authenticated that person, as in `Client.start`.
            context: Another typed context, as in `Client.start`; None for that of the thread at that event.

        Raises:
            ContextInvalid: The context cannot be recorded.
            PositionInvalid: There is no such event, or no message to edit.
            ThreadExists: Another thread has this id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The message cannot be sent, or there are two messages.
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
            by=checked_name(self._by if by is None else by),
            by_proven=by_proven or by is None,
            context=context,
        )
        return self._sibling(done.thread)

    async def restart(
        self,
        *,
        id: str | None = None,
        task: Content | None = None,
        agent: str | None = None,
        workspace: str | Path | None = None,
        by: str | None = None,
        by_proven: bool = False,
        context: BaseModel | Mapping[str, object] | None = None,
    ) -> "Thread":
        """Start the thread's task again in a new thread, with a clean slate. This thread keeps its record.

        Args:
            id: The new thread's id; None for a generated id.
            task: Another task; None for the same.
            agent: Another agent; None for the same.
            workspace: A folder on the worker's machine; None for the new thread's own folder.
            by: The person who gives the task; None for the client's `by`, or else the same person, unauthenticated.
            by_proven: Whether this program has authenticated that person, as in `Client.start`.
            context: Another typed context, as in `Client.start`; None for the one that the thread was started with.

        Raises:
            ContextInvalid: The context cannot be recorded.
            ThreadExists: A thread has this id.
            ThreadIdInvalid: The id cannot be used.
            TaskInvalid: The task is empty or too long.
            EventsMissing: The thread's first events can no longer be read.
        """
        options = StartOptions(
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            by=checked_name(self._by if by is None else by),
            by_proven=by_proven or by is None,
            context=context_values(context),
        )
        return self._sibling((await restart(self._threads, self.id, options, id=id, task=task)).thread)

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

        An open run is exported up to its last recorded event. The ledger and the artifacts come from the client's
        database. In the result, `left_out` lists those that the file lacks, `unread` the sub-agents whose logs could
        not be read, and `seals` counts the signed checkpoints in the file.

        Args:
            path: The file. An existing file is never overwritten.
            redact: Drop bodies and artifacts, and keep digests.
            artifacts: Whether to include the artifacts.
            subagents: Whether to include the logs of sub-agents, recursively.
            key: The file of the private key to sign with; None for the client's `key`. Without a key, the file is not
                signed, and anybody could have made it.
            anchors: Folders and files with signed checkpoints of the thread to include; None for the anchors in
                `HOLDFAST_ANCHORS` that can be read from this machine, which excludes webhooks; empty for none.

        Raises:
            ExportFailed: The file exists, cannot be written or would be too large; or the id is that of a loop.
            EventsMissing: Some of the thread's events can no longer be read.
            ArtifactNotFound: The store lacks an artifact that an event references.
            SettingsError: The key or an anchor cannot be read, or a package is missing.
        """
        _require_cli("exporting", "psycopg", "securesystemslib")
        from holdfast.portable.export import export_thread

        return await export_thread(
            self._threads,
            self.id,
            Path(path),
            evidence=await self._evidence() if self._evidence else None,
            private=self._private(key),
            redact=redact,
            artifacts=artifacts,
            anchors=self._witnesses(anchors, None),
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
        """Check that the thread is as it was recorded, as `holdfast verify` does.

        `verdict` is `proven`, `altered`, or `not_proven` if no check failed but some could not run; `unchecked` lists
        those. The MACs of Temporal's histories are checked if the client has the fleet key.

        Args:
            keys: A file with people, gateways and their keys, as a policy lists them; None to trust the log's own.
            anchors: Folders and files to which workers wrote signed checkpoints of the record; None for those in
                `HOLDFAST_ANCHORS` that can be read from this machine.
            nodes: Public keys of the trusted nodes. Empty: the seals of all nodes count (in the embedded anchor, those
                of this machine's node), and signatures of results are verified with the key of this machine's node.
            require: Checks that must have run for the verdict `proven`.

        Raises:
            SettingsError: A file or an anchor cannot be read, or a package is missing.
        """
        _require_cli("verifying", "psycopg")
        from holdfast.audit.evidence.verify import verify
        from holdfast.composition.witnesses import own_nodes
        from holdfast.config.policy_file import load_policy
        from holdfast.core.authority.signatures import check_key

        try:
            named = {check_key(node): None for node in nodes} or None
        except ValueError as error:
            raise SettingsError(f"nodes: {error}") from None
        result = await verify(
            self._threads,
            self.id,
            evidence=await self._evidence() if self._evidence else None,
            trusted=load_policy(Path(keys)) if keys else None,
            anchors=self._witnesses(anchors, named),
            nodes=named or (own_nodes(self._settings) if self._settings else None),
        )
        return required(result, require)

    def _witnesses(self, places: Sequence[Path | str] | None, nodes: Mapping[str, None] | None) -> "Anchors | None":
        """Return these anchors, or those of the settings, with the nodes whose seals count; None for no anchor."""
        from holdfast.audit.anchors.setting import check_anchor_path
        from holdfast.audit.evidence.anchors import Anchors
        from holdfast.composition.witnesses import witnesses_of

        if places is None:
            return witnesses_of(self._settings, nodes) if self._settings else None
        return Anchors([check_anchor_path(Path(place)) for place in places], nodes) if places else None

    async def move(
        self,
        path: Path | str,
        *,
        to: str = "",
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> Exported:
        """End the thread here as `moved`, and write a file from which `Client.import_thread` continues it elsewhere.

        Running tools finish first. If it fails, repeat it: for a thread that is moved already, it only writes the file.

        Args:
            path: The file. An existing file is never overwritten.
            to: The id of the only namespace that may import it, as returned by `Client.place` there; empty for any.
            by: The person who moves it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign with, as for `export`.

        Raises:
            NotAccepted: The run cannot move: it belongs to a sub-agent or a loop, or has open sub-agents.
            NoWorker: No worker responds.
            ExportFailed: The file exists, or would lack the ledger or the artifacts.
            SettingsError: The key cannot be read, `by` is not set, or a package is missing.
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


def _require_cli(activity: str, *packages: str) -> None:
    """Check that packages of the `cli` extra are installed.

    Raises:
        SettingsError: A package is missing.
    """
    if not all(find_spec(package) for package in packages):
        raise SettingsError(f"{activity} needs packages of the command line: {setup_command('cli')}")
