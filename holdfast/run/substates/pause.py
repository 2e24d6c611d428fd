"""A pause of the run by a person: by whom, why, and until when."""

from datetime import datetime
from typing import Any

from holdfast.authority.statements import Proof
from holdfast.base.models import Frozen


class Pause(Frozen):
    """Nothing starts before it ends; what was under way ends, and is recorded."""

    by: str
    reason: str = ""
    since: datetime
    until: datetime | None = None
    """When it ends by itself; None for never."""
    proof: Proof = ""
    """How it is known who paused the run: a signed pause is ended by a signed statement alone."""

    def view(self) -> dict[str, Any]:
        """Return the pause as `show` presents it."""
        return self.model_dump(mode="json")
