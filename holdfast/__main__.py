"""The command `holdfast`: the verbs of `starter.py`, and the programs `worker` and `gateway`, each loaded on use.

Exit codes are those of `starter.py`; 2 also says that the extra which a command needs is not installed.
"""

import sys
from typing import NoReturn

from holdfast.config.extras import is_installed
from holdfast.config.programs import COMMAND, GATEWAY, WORKER, setup_command

USAGE = 2


def main() -> NoReturn:
    """Run the command line, and end the process with the exit code."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    extra = named if named in (WORKER.verb, GATEWAY.verb) else "cli"
    if not is_installed(extra):
        print(f"{COMMAND}: packages that this command needs are missing: {setup_command(extra)}", file=sys.stderr)
        sys.exit(USAGE)
    from holdfast.cli.app import add_program, run
    from holdfast.starter import app

    add_program(app, WORKER, "holdfast.worker.__main__", help="Run agents until Ctrl-C.")
    add_program(app, GATEWAY, "holdfast.gateway.__main__", help="Serve threads over HTTP until Ctrl-C.")
    run(app)


if __name__ == "__main__":
    main()
