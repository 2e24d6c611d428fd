"""The folder of the release demo."""

from pathlib import Path

from holdfast.examples.shared import folders


def new_folder(state: Path) -> folders.DemoFolder:
    """Create the folder of a new demo under the state folder `state`, and remove earlier ones.

    Raises:
        OSError: The folder cannot be created.
    """
    return folders.new_folder(state, "trickle")
