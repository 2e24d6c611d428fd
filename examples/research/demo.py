"""The demo: a tree of agents researches a question; its worker is killed four times, and a person steers it.

    python -m holdfast.examples.research.demo            (or: make demo-tree)

Temporal, PostgreSQL, HTTP requests and SIGKILLs are real. Without an API key, the LLM is scripted.
"""

from typing import Annotated

import typer

from holdfast.examples.research.scenario import Demo
from holdfast.examples.research.steering import THREAD
from holdfast.examples.shared.folders import new_folder
from holdfast.examples.shared.runner import run_demo


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack and the worker running at the end.")] = False,
) -> None:
    """Research a question with a tree of agents whose worker is killed four times. Needs no API key and no Docker."""
    run_demo(
        lambda folder, console, scripted: Demo(folder, console, scripted=scripted),
        lambda state: new_folder(state, "library"),
        title="agents research a question for a day; meanwhile their worker is killed four times.",
        look=f"show {THREAD} --tree",
        keep=keep,
    )


if __name__ == "__main__":
    typer.run(main)
