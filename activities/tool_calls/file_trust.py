"""The trust level of files: a file that an agent writes after reading the web has the level `web` for every reader.

A call that may write to the workspace marks its files first (`holdfast.workspace.tainted_files`), if the run
has read the web, or the call may read a marked file. The result of a call that may have read one has the level `web`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.progress_file import DEFAULT_FILE
from holdfast.workspace.tainted_files import TaintedFiles


@dataclass(frozen=True)
class FileTrust:
    """The files that a call may read and write, and the trust level of the run, for a tool that takes the context."""

    tool: Tool
    arguments: Mapping[str, Any]
    request: ToolRequest
    marks: TaintedFiles

    async def mark(self) -> None:
        """Mark the files that the call may write. Called before the call.

        Raises:
            OSError: The state folder cannot be used. Retryable: nothing has been written.
        """
        if self._applies and await asyncio.to_thread(self._may_write_web):
            await self._mark()

    async def label(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome of the call with the trust level of the files that it may have read.

        Raises:
            OSError: As for `mark`. The next attempt finds the outcome in the ledger.
        """
        if not self._applies:
            return outcome
        if await asyncio.to_thread(self._is_marked):
            outcome = outcome.model_copy(update={"trust": "web"})
        if outcome.trust == "web":  # its files may contain it now, too, or text that another run wrote meanwhile
            await self._mark()
        return outcome

    @property
    def _applies(self) -> bool:
        return self.request.trust is not None and self._files != ()

    @property
    def _files(self) -> tuple[str, ...] | None:
        files, progress = self.tool.files_of(self.arguments), self.request.progress
        if files is None or progress is None:
            return files
        return tuple(progress.name if name == DEFAULT_FILE else name for name in files)

    async def _mark(self) -> None:
        if self.tool.spec.effect is not Effect.READ:
            await asyncio.to_thread(self.marks.mark, Path(self.request.workspace), self._files)

    def _may_write_web(self) -> bool:
        return "web" in (self.request.trust, self.tool.spec.trust) or self._is_marked()

    def _is_marked(self) -> bool:
        return self.marks.have(Path(self.request.workspace), self._files)
