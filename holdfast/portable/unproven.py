"""Lists the claims that a valid portable file cannot prove, for the person who relies on it."""

from collections.abc import Iterator, Sequence

from holdfast.audit.evidence.evidence import Unchecked
from holdfast.audit.evidence.losses import lost
from holdfast.core.authority.policy import Policy
from holdfast.portable.judging import LogFindings
from holdfast.portable.reader import PortableFile
from holdfast.portable.tree import TreeFindings


def not_proven(
    file: PortableFile,
    judged: LogFindings | None,
    tree: TreeFindings,
    trusted: Policy | None,
    signer: str | None,
    artifacts: bool,
) -> tuple[Unchecked, ...]:
    """Return the unproven claims of a file without a fault."""
    manifest = file.manifest
    gaps: list[tuple[str, str]] = []
    if not file.signers:
        gaps.append(("signature", "the file has no signature: anybody could have written all of it"))
    elif signer is None and not (trusted and trusted.file_keys & set(file.signers)):
        text = f"the file is signed with {', '.join(file.signers)}, and nobody has named that key as a signer of files"
        gaps.append(("signer", f"{text}: give the one that you trust with --signer, or `signers` in --keys"))
    gaps.append(("history", "a file has no Temporal history: unsigned events are as its exporter read them"))
    if judged is None:
        text = "only the digests of most events are there: what they say, and what follows from it, is not known"
        gaps.append(("bodies", text))
    else:
        gaps += _of_logs(judged, tree, trusted)
        gaps += [(gap.what, gap.why) for gap in lost(tree.losses)]
    if "ledger" in manifest.left_out or judged is None:
        gaps.append(("ledger", "the file has no rows of the ledger, or no outcomes"))
    if "artifacts" in manifest.left_out or not artifacts:
        count = f"the log refers to {len(tree.artifacts)}; " if judged else ""
        gaps.append(("artifacts", f"{count}not all are in the file, or checked"))
    return tuple(Unchecked(*pair) for pair in gaps)


def _of_logs(judged: LogFindings, tree: TreeFindings, trusted: Policy | None) -> Iterator[tuple[str, str]]:
    """Yield the unproven claims of judged logs."""
    if judged.last != "run_finished":
        yield "end", "the log does not end with run_finished: later events cannot be ruled out"
    elif tree.open:
        text = f"the logs of {_some(tree.open)} do not end with run_finished"
        yield "end", f"{text}: later events cannot be ruled out"
    if trusted is None:
        text = "the policy, its people and their keys come from the file itself: give those that you trust with --keys"
        yield "keys", text
    elif tree.policies - {trusted.hash}:
        yield "policy", "the approvers come from the file itself: its policy differs from the one given"
    if judged.forked:
        text = f"events 0 to {judged.forked.position - 1} belong to thread {judged.forked.origin}"
        yield "original", f"{text}: what they did is not in this ledger, and whether they are all is not known"
    if judged.parent:
        text = f"the log names {judged.parent} as the thread that started this sub-agent"
        yield "parent", f"{text}: that it handed down these policies and constraints is in that thread's log"
    if tree.missing:
        text = f"the file does not have the logs of {_some(tree.missing)}"
        yield "subagents", f"{text}: what these did, and whether they answered like this, is in their logs"
    if tree.branched:
        text = f"a reset of {_some(tree.branched)} or of the run above"
        yield "subagents", f"{text}: that the logs of both say the same of beginning and end was not compared wholly"


def _some(threads: Sequence[str]) -> str:
    """Name the first of some threads."""
    more = f" and {len(threads) - 3} more" if len(threads) > 3 else ""
    return ", ".join(threads[:3]) + more
