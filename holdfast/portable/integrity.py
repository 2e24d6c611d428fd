"""Checks the integrity of a portable file: its signatures, each member against its digest, the logs event by event."""

from collections.abc import Callable
from contextlib import suppress

from holdfast.core.authority.policy import Policy
from holdfast.core.base.canonical import GENESIS, canonical, parse_json
from holdfast.core.log.event_log import digest_of_line
from holdfast.core.log.node_seals import SignedCheckpoint
from holdfast.errors import NotPortable
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import ARTIFACTS, NODES, SEALS, STATEMENT, is_log, path_of
from holdfast.portable.format.redaction import is_redacted, shape_fault
from holdfast.portable.format.seals import check_nodes, check_seals, claimed_positions
from holdfast.portable.reader import PortableFile


def check_signers(file: PortableFile, trusted: Policy | None, signer: str | None) -> None:
    """Check the signers.

    Raises:
        Unsound: The required signature is missing, or no signer is trusted.
    """
    if signer is not None and signer not in file.signers:
        raise Unsound(STATEMENT, f"it is not signed with the key {signer}")
    if signer is None and trusted is not None and file.signers:
        # Without `signers`, any key of the policy suffices, although people and gateways only vouch for decisions.
        people = {key for person in trusted.approvers for key in person.keys}
        gateways = {key for gateway in trusted.gateways for key in gateway.keys}
        if not (trusted.file_keys or people | gateways) & set(file.signers):
            raise Unsound(STATEMENT, f"it is signed with {file.signers[0]}, which is none of the given keys")


def check_whole(file: PortableFile, *, artifacts: bool = True) -> str:
    """Check the members in order: logs event by event, all others by their digests.

    Returns:
        The thread that the log begins with: for a fork, the original; for an archived branch, its thread.

    Raises:
        Unsound: A member was altered.
    """
    owner = ""
    # The chain is checked before the seals and not kept, so first read from the seals which digests they need.
    digests: dict[int, str] = {}
    if file.has(SEALS):
        with suppress(Unsound):  # reported when the member is checked
            digests = dict.fromkeys(claimed_positions(file.small(SEALS)), "")
    seals: tuple[SignedCheckpoint, ...] = ()
    digest_of = _redacted_digest if file.manifest.redacted else digest_of_line
    for name in file.names[:-2]:
        if name == file.log:
            owner = _check_chain(file, name, digest_of, digests)
        elif is_log(name):
            _check_chain(file, name, digest_of, {})
        elif name == SEALS:
            seals = check_seals(file.content(SEALS), thread=file.manifest.thread, digests=digests)
        elif name == NODES:
            check_nodes(file.content(NODES), seals)
        elif name.startswith(ARTIFACTS):
            if artifacts and file.check(name) != name.removeprefix(ARTIFACTS):
                raise Unsound(name, "its name is not the digest of its content")
        else:
            file.check(name)
    if seals and not file.has(NODES):
        raise Unsound(NODES, "it is missing, and there are seals")
    return owner


def _check_chain(
    file: PortableFile,
    name: str,
    digest_of: Callable[[str, dict[str, object], bytes], str],
    digests: dict[int, str],
) -> str:
    """Check a log event by event; fill in the digests at the positions in `digests`."""
    head, count, thread = GENESIS, 0, file.thread_at(path_of(name))
    first: dict[object, object] = {}  # fork → the thread that its log begins with
    for line in file.lines(name):
        try:
            event = parse_json(line)
            sound = isinstance(event, dict) and canonical(event) == line
        except (ValueError, RecursionError, NotPortable):
            event, sound = {}, False
        if not sound:
            raise Unsound(name, "its line is not canonical JSON", count)
        head = digest_of(head, event, line)
        if type(event.get("position")) is not int or event["position"] != count or event.get("digest") != head:
            raise Unsound(name, "it was altered, or another one is in its place", count)
        if event.get("type") == "run_forked" and all(isinstance(event.get(key), str) for key in ("thread", "origin")):
            first[event["thread"]] = first.get(event["origin"], event["origin"])
        if count in digests:
            digests[count] = head
        if name != file.log and count == 0 and not is_redacted(event) and event.get("thread") != thread:
            raise Unsound(name, f"it is the log of another thread, and has the name of {thread}", count)
        count += 1
    if name != file.log and not count:
        raise Unsound(name, "it has no events", count)
    if name == file.log and (count, head) != (file.manifest.events, file.manifest.head):
        raise Unsound(name, f"it is not where the log ends: the manifest has {file.manifest.events} events", count)
    return str(first.get(thread, thread))


def _redacted_digest(head: str, event: dict[str, object], line: bytes) -> str:
    """Return the digest of an event; for an event without its body, the one that it claims."""
    if not is_redacted(event):
        return digest_of_line(head, event, line)
    claimed = event.get("digest")
    return claimed if isinstance(claimed, str) and not shape_fault(event) else ""
