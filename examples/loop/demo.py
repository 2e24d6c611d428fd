"""The demo: a loop implements a list of features; its worker is killed, and its tasks are edited by hand.

    python -m holdfast.examples.loop.demo            (or: make demo-loop)

Temporal, PostgreSQL, git, HTTP requests and SIGKILLs are real. Without an API key, the LLM is scripted.
"""

from typing import Annotated

import typer

from holdfast.examples.loop.scenario import LOOP, Demo
from holdfast.examples.shared.folders import new_folder
from holdfast.examples.shared.runner import run_demo


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack and the worker running at the end.")] = False,
) -> None:
    """Have a loop of agents implement a list of features, kill its worker, and edit its tasks by hand."""
    run_demo(
        lambda folder, console, scripted: Demo(folder, console, scripted=scripted),
        lambda state: new_folder(state, "tally"),
        title="a loop implements a list of features; meanwhile its worker is killed and its tasks are edited by hand.",
        look=f"show {LOOP}",
        keep=keep,
    )


if __name__ == "__main__":
    typer.run(main)
