"""The verb by which a person approves what would instruct agents in a workspace."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from holdfast.base.digests import digest as digest_of
from holdfast.runtime.cli.exits import OK, REFUSED
from holdfast.runtime.cli.text import count, indented, visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.memory.recall import WorkspaceMemory
from holdfast.runtime.workspace.approved_instructions import Approvals, Instruction


class Trusting(Invocation):
    """Approves instructions."""

    async def trust(self, workspace: Path, digest: str | None, *, by: str | None) -> int:
        """Show what would instruct agents in a folder; approve it, where the person says so."""
        approvals = Approvals(self._settings.home)
        found = list(WorkspaceMemory(approvals).instructions(workspace))
        missing = [each for each, approved in found if not approved]
        all_of_it = f"sha256:{digest_of([each.digest for each, _ in found])}"
        counts = approvals.count_in(workspace)
        if not counts:
            self._output.note(
                f"{visible(str(workspace))} holds the state folder {visible(str(self._settings.home))}, so no approval "
                "counts in it; set HOLDFAST_HOME to a folder elsewhere, for worker.py and starter.py"
            )
        approved = counts and bool(missing) and self._approved(found, digest, all_of_it)
        if approved:
            approvals.add(missing, by=self._name(by), at=datetime.now(UTC))
        told = [
            {"what": each.what, "digest": each.digest, "approved": was or approved, "text": each.text}
            for each, was in found
        ]
        screen = Text(f"{count(len(missing), 'instruction')} approved") if approved else Text("")
        if not found:
            screen = Text("Nothing in this folder instructs agents.")
        elif not missing:
            screen = Text("All of it is approved already.")
        self._output.result({"digest": all_of_it, "instructions": told}, screen)
        if digest is not None and digest != all_of_it:
            self._output.note(f"what is there now has the digest {all_of_it}; nothing was approved")
            return REFUSED
        return OK if counts or not missing else REFUSED

    def _approved(self, found: list[tuple[Instruction, bool]], digest: str | None, all_of_it: str) -> bool:
        """Whether the person approves, after having been shown what they approve."""
        if digest is not None or self._output.as_json:
            return digest == all_of_it
        for each, approved in found:
            mark = ("approved", "green") if approved else ("not approved", "bold yellow")
            head = Text.assemble((visible(each.what), "bold"), "  ", mark, (f"  {each.digest}", "dim"))
            body = "\n".join(indented(visible(line)) for line in each.text.splitlines())
            self._output.note(Text.assemble(head, f"\n{body}\n"))
        if not sys.stdin.isatty():
            self._output.note(f"To approve it: --digest {all_of_it}")
            return False
        self._output.note(
            "Agents that work in this folder will be told this as instructions. Read all files of skills."
        )
        return input("Approve it? [y/N] ").strip().casefold() in ("y", "yes")
