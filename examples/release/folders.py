"""Where the release demo keeps its files."""

from pathlib import Path

from examples.stage import folders


def new_folder(state: Path) -> folders.DemoFolder:
    """Make the folder of a new demo under the state folder `state`, and remove earlier ones.

    Raises:
        OSError: It cannot be written.
    """
    return folders.new_folder(state, "trickle")
