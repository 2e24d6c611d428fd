"""The commands of our programs: `holdfast worker` after an installation, `python worker.py` in a checkout.

For hints and errors of a process. Recorded texts (workflow code, agent specs) are the same everywhere: they name the
command `holdfast`.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.namesake import DISTRIBUTION

PACKAGE = Path(__file__).parents[1]
"""The folder of the package `holdfast`. In a checkout, it has links to the programs, which are beside it."""
COMMAND = "holdfast"
"""The command that the wheel installs."""


@dataclass(frozen=True)
class Program:
    """One of our programs."""

    file: str
    """In a checkout, such as `worker.py`."""
    verb: str = ""
    """The verb after `holdfast`; empty for the command line itself."""

    @property
    def name(self) -> str:
        """The prefix of its errors: `worker.py`, or `holdfast worker`."""
        return self.file if _runs_files() else f"{COMMAND} {self.verb}".rstrip()

    def command(self, *words: str) -> str:
        """Return a command line to copy: `python starter.py approve my-thread 1`, or `holdfast approve my-thread 1`."""
        program = f"python {self.file}" if _runs_files() else self.name
        return " ".join([program, *map(shlex.quote, words)])

    def command_anywhere(self, *words: str) -> str:
        """Return a command line to copy in any folder: in a checkout, with the path of the program."""
        program = f"python {shlex.quote(str(PACKAGE.parent / self.file))}" if _runs_files() else self.name
        return " ".join([program, *map(shlex.quote, words)])


CLI = Program("starter.py")
WORKER = Program("worker.py", "worker")
GATEWAY = Program("gateway.py", "gateway")


def setup_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return "make setup" if _runs_files() else f"pip install '{DISTRIBUTION}[{extra}]'"


def base_folder() -> Path:
    """Return the folder that holds `.holdfast` by default: the checkout; after an installation, the current folder."""
    return PACKAGE.parent if in_checkout() else Path.cwd()


def in_checkout() -> bool:
    """Whether the programs are beside the package, as in a checkout and in our image."""
    program = PACKAGE.parent / CLI.file
    return program.exists() and program.samefile(PACKAGE / CLI.file)


def has_command() -> bool:
    """Whether this process was started as the command `holdfast`."""
    return Path(sys.argv[0]).name == COMMAND


def _runs_files() -> bool:
    return in_checkout() and not has_command()  # an editable installation of a checkout has the command
