"""Sets of recorded runs, as a file in a user's repository describes them: which runs, what is expected, and stubs."""

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
    """The result of a call that the recording does not have."""

    tool: str = Field(min_length=1)
    arguments: dict[str, Any] | None = None
    """Only for calls whose arguments have these values; None for all calls of the tool."""
    result: Any
    """Text, or JSON."""
    status: Literal["ok", "failed"] = "ok"

    @property
    def text(self) -> str:
        """What the LLM reads."""
        return self.result if isinstance(self.result, str) else exact_json(self.result)

    def fits(self, call: ToolCall) -> bool:
        """Whether this is the result of a call."""
        if call.name != self.tool:
            return False
        if self.arguments is None:
            return True
        try:
            given = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(given, dict) and all(
            name in given and given[name] == value for name, value in self.arguments.items()
        )


class RunOf(Frozen, extra="forbid"):
    """A recorded run in a set."""

    file: Annotated[str, AfterValidator(_beneath)]
    """The file, beneath the folder of the set."""
    agent: str | None = None
    """The agent that plays it; None for the one of the recorded name."""
    expect: tuple[Expectation, ...] = USUAL
    result_has: tuple[str, ...] = ()
    """Texts that the result has to contain, in upper or lower case."""
    stub: tuple[Stub, ...] = ()


class EvalSet(Frozen, extra="forbid"):
    """A set of recorded runs."""

    run: tuple[RunOf, ...] = Field(min_length=1, max_length=MAX_RUNS)
