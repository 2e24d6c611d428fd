"""The command line: start agent runs, inspect them, decide their requests. `python starter.py --help`.

The verbs are in `holdfast.cli.verbs`, a file for each group; `holdfast.cli.app` puts them together.
Exit codes (`holdfast.cli.exits`): 0 ok · 1 the run failed or diverges · 2 usage · 3 not found · 4 no server or
no worker · 5 refused · 6 the run waits for a person (`start --wait`).
"""

from collections.abc import Sequence
from typing import NoReturn

from holdfast.cli.app import build_app, run


def _workflows() -> Sequence[type]:
    from holdfast.workflows import WORKFLOWS  # here, because only `replay` needs them

    return WORKFLOWS


app = build_app(workflows=_workflows)


def main() -> NoReturn:
    """Run the command line, and end the process with the verb's exit code."""
    run(app)


if __name__ == "__main__":
    main()
