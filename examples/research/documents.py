"""The library for the agents: documents about a job queue, and one that arrives while they work.

python -m holdfast.examples.research.documents FOLDER          creates it
python -m holdfast.examples.research.documents FOLDER --later  adds the document that arrives later
"""

import shutil
from pathlib import Path
from typing import Annotated

import typer

LIBRARY = Path(__file__).parent / "library"

EVENT = "load-test.finished"
"""The event that announces the later document."""
LATER = "2026-03-soak-test"
"""Its name."""


def create(folder: Path) -> Path:
    """Copy the library into a new or empty folder; return the folder.

    Raises:
        FileExistsError: The folder is not empty.
        OSError: The folder cannot be written.
    """
    folder = folder.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder")
    for file in sorted(LIBRARY.glob("*.md")):
        shutil.copyfile(file, folder / file.name)
    return folder


def deliver(folder: Path) -> Path:
    """Add the document that arrives later; return its path.

    Raises:
        OSError: The folder does not exist, or cannot be written.
    """
    target = folder.expanduser().resolve() / f"{LATER}.md"
    part = target.with_suffix(".part")  # so that no search finds a partial document
    shutil.copyfile(LIBRARY / "later" / target.name, part)
    return part.rename(target)


def main(
    folder: Path,
    later: Annotated[bool, typer.Option("--later", help="Add the document that arrives later.")] = False,
) -> None:
    """Create the example's library in FOLDER."""
    try:
        print(deliver(folder) if later else create(folder))
    except OSError as error:
        raise SystemExit(f"documents: {error}") from None


if __name__ == "__main__":
    typer.run(main)
