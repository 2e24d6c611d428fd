"""Datasets of recorded runs, as files in a user's repository define them: runs, expectations, and stubs of results."""

import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.core.base.canonical import exact_json
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall
from holdfast.evaluation.compare.evaluation import USUAL, Expectation

SUFFIX = ".holdfast"
MAX_RUNS = 1_000


def _beneath(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not path.isprintable() or not parts or path.startswith("/") or ".." in parts or "\\" in path:
        raise ValueError("name a file beneath the set's folder, such as runs/refund.holdfast")
    if not path.endswith(SUFFIX):
        raise ValueError(f"a recorded run is a file that `export` made: NAME{SUFFIX}")
    return path


class Stub(Frozen, extra="forbid"):
    """The result of a call that is missing from the recording."""

    tool: str = Field(min_length=1)
    arguments: dict[str, Any] | None = None
    """Restricts the stub to calls with these argument values; None for all calls of the tool."""
    result: Any
    """Text, or JSON."""
    status: Literal["ok", "failed"] = "ok"

    @property
    def text(self) -> str:
        """The result as the LLM reads it."""
        return self.result if isinstance(self.result, str) else exact_json(self.result)

    def fits(self, call: ToolCall) -> bool:
        """Whether this stub applies to a call."""
        if call.name != self.tool:
            return False
        if self.arguments is None:
            return True
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(arguments, dict) and all(
            name in arguments and arguments[name] == value for name, value in self.arguments.items()
        )


class DatasetRun(Frozen, extra="forbid"):
    """A recorded run in a dataset."""

    file: Annotated[str, AfterValidator(_beneath)]
    """The file, beneath the folder of the dataset."""
    agent: str | None = None
    """The agent for the rerun; None for the one with the recorded name."""
    expect: tuple[Expectation, ...] = USUAL
    result_has: tuple[str, ...] = ()
    """Texts that the result must contain; case is ignored."""
    stub: tuple[Stub, ...] = ()


class Dataset(Frozen, extra="forbid"):
    """A dataset of recorded runs."""

    run: tuple[DatasetRun, ...] = Field(min_length=1, max_length=MAX_RUNS)
