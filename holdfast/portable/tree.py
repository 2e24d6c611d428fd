"""Judges the logs of a tree of runs in a portable file: each against the log of the run that started it."""

from dataclasses import dataclass, field

from holdfast.audit.judge.signed_results import MadeCall
from holdfast.audit.judge.trees import Family, difference
from holdfast.core.log.events import EventsLost
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.judging import LogFindings
from holdfast.portable.reader import PortableFile


@dataclass
class TreeFindings:
    """The findings about all logs of a file. Its size grows with the sub-agents of one branch, not with the logs."""

    artifacts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Address → the first log and event that refer to it."""
    signatures: int = 0
    calls: list[MadeCall] = field(default_factory=list)
    """The LLM and tool calls of all logs, with the nodes that made them."""
    one_login: list[str] = field(default_factory=list)
    """Sentences about quorums that one login has filled."""
    losses: list[EventsLost] = field(default_factory=list)
    """The gaps that restored backups have left in any of them."""
    policies: set[str] = field(default_factory=set)
    """Digests of the policies that have been in force."""
    missing: list[str] = field(default_factory=list)
    """Sub-agents that a log has started, and whose logs are not in the file."""
    open: list[str] = field(default_factory=list)
    """Sub-agents whose logs end with an open run."""
    branched: list[str] = field(default_factory=list)
    """Sub-agents that were only partly compared with the log above them, because one of the two was reset."""
    _above: dict[str, Family] = field(default_factory=dict)
    """The last log and those above it, by path."""

    def take(self, file: PortableFile, judged: LogFindings, path: str = "") -> None:
        """Add a judged log; logs come in the order of the file.

        Raises:
            Unsound: The log contradicts the log of the run that started it.
        """
        name, thread, audit = child_member(LOG, path), file.thread_at(path), judged.audit
        for address, position in audit.artifacts.items():
            self.artifacts.setdefault(address, (name, position))
        self.signatures += audit.signatures
        self.calls += audit.results.calls
        self.one_login += audit.one_login
        self.losses += audit.losses
        self.policies |= audit.policies
        above = path.rpartition(".")[0]
        self._above = {each: self._above[each] for each in self._above if not each or f"{path}.".startswith(f"{each}.")}
        if path and (reason := difference(self._above[above], audit.family, thread)):
            raise Unsound(name, reason)
        if path and (audit.family.was_reset or self._above[above].was_reset):
            self.branched.append(thread)
        if path and judged.last != "run_finished":
            self.open.append(thread)
        self._above[path] = audit.family
        below = {child: f"{path}.{named.started.number}".lstrip(".") for child, named in audit.family.named.items()}
        self.missing += [child for child, path_below in below.items() if not file.has(child_member(LOG, path_below))]
