"""What an agent's `verify` tools find, until all of them have answered."""

from holdfast.llm.blocks import text_of
from holdfast.log.events import Finding
from holdfast.run.contracts import ToolOutcome


class Verification:
    """The findings so far. Not part of `RunState`, because they mean nothing before they are complete: they are
    recorded together, as one event. A new Temporal run starts the `verify` tools anew.
    """

    def __init__(self) -> None:
        self.baseline = False
        """The tools run because requests have opened; else because of a long pause."""
        self._findings: list[Finding] = []

    def begin(self, *, baseline: bool) -> None:
        """Note why the tools are started."""
        self.baseline = baseline

    def add(self, tool: str, outcome: ToolOutcome) -> None:
        """Add what one tool has found."""
        found = Finding(tool=tool, status=outcome.status, content=text_of(outcome.content), trust=outcome.trust)
        self._findings.append(found)

    def take(self) -> tuple[Finding, ...]:
        """Return the findings in the order of their tools' names, and begin anew."""
        findings, self._findings = self._findings, []
        return tuple(sorted(findings, key=lambda finding: finding.tool))
