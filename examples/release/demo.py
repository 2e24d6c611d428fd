"""The demo: an agent releases a Python package, and its worker is killed twice, at the worst moments.

    python -m holdfast.examples.release.demo            (or: make demo)

Temporal, PostgreSQL, git, HTTP requests and SIGKILLs are real. Without an API key, the LLM is scripted.
"""

from typing import Annotated

import typer

from holdfast.examples.release.folders import new_folder
from holdfast.examples.release.scenario import THREAD, Demo
from holdfast.examples.shared.runner import run_demo


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack and the worker running at the end.")] = False,
) -> None:
    """Release a package with an agent whose worker is killed twice. Needs neither an API key nor Docker."""
    run_demo(
        lambda folder, console, scripted: Demo(folder, console, scripted=scripted),
        new_folder,
        title="an agent releases a Python package, and its worker is killed twice.",
        look=f"log {THREAD}",
        keep=keep,
    )


if __name__ == "__main__":
    typer.run(main)
