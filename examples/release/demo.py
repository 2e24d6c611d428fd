"""The demo: an agent releases a Python package, and its worker is killed twice, at the worst moments.

    python -m examples.release.demo            (or: make demo)

Everything is real: Temporal, PostgreSQL, git, HTTP to an LLM, SIGKILL. Without a key the LLM is scripted.
"""

from typing import Annotated

import typer

from examples.release.folders import new_folder
from examples.release.scenes import THREAD, Demo
from examples.stage.playing import run_demo


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack and the worker running at the end.")] = False,
) -> None:
    """Release a package with an agent whose worker is killed twice. No key and no Docker needed."""
    run_demo(
        lambda folder, console, scripted: Demo(folder, console, scripted=scripted),
        new_folder,
        title="an agent releases a Python package, and its worker is killed twice.",
        look=f"log {THREAD}",
        keep=keep,
    )


if __name__ == "__main__":
    typer.run(main)
