"""Warns of the other distribution `holdfast`: it installs the same import package as ours, `holdfast-agents`.

If both are installed, either may have overwritten files of the other. Worker, gateway, `doctor` and `import holdfast`
warn of it.
"""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

DISTRIBUTION = "holdfast-agents"
"""Our distribution. The import package and the command are `holdfast`."""


def namesake_warning(paths: Sequence[str] | None = None) -> str | None:
    """Return a warning with advice if the other distribution is installed; None otherwise.

    Args:
        paths: The folders of packages, by default those of `sys.path`.
    """
    for path in sys.path if paths is None else paths:
        try:
            names = [entry.name for entry in Path(path or ".").iterdir()]
        except OSError:
            continue
        # Ours is written holdfast_agents-VERSION.dist-info, so the hyphen distinguishes the two.
        other = next((name for name in names if name.startswith("holdfast-") and name.endswith(".dist-info")), None)
        if other:
            version = other.removeprefix("holdfast-").removesuffix(".dist-info")
            return (
                f"another distribution, `holdfast` {version}, is installed in {path}, and has the same import name as "
                f"{DISTRIBUTION}: either may have overwritten files of the other. Remove both "
                f"(`pip uninstall holdfast {DISTRIBUTION}`), then install {DISTRIBUTION} again."
            )
    return None


def warn_of_namesake() -> None:
    """Warn a program that imports `holdfast`."""
    if warning := namesake_warning():
        warnings.warn(warning, RuntimeWarning, stacklevel=4)
