"""The state folder of this process: what the worker keeps on its machine, beside what is in Temporal and PostgreSQL."""

import os
from pathlib import Path


def state_folder() -> Path:
    """`HOLDFAST_HOME`; without it, `.holdfast` beside `worker.py` and `starter.py`, which both set it."""
    named = os.environ.get("HOLDFAST_HOME")
    return Path(named).expanduser().absolute() if named else Path(__file__).parents[2] / ".holdfast"
