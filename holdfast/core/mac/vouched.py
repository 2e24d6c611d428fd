"""Inputs of a program's workflows that name a person, under the seal of the process that has authenticated that person.

Anybody with access to Temporal can start a program's workflow with any input. So a name in an input is a claim, unless
the whole input bears a seal: a program makes one with `vouch_for`, and the payload converter seals it for the workflow
that it starts. The proof then holds in that workflow:

1. It covers the input's type, all of its fields, and the workflow's id.
2. It is valid for a short time, so that a copy cannot start the workflow later (`START_WITHIN`).
3. A value that arrived without a valid seal never gets one: passing a claim on does not prove it.
4. A workflow that continues as new passes `carried()` on, which binds the proof to its chain of Temporal runs.
"""

from datetime import datetime
from typing import Any, ClassVar, Self

from pydantic import BaseModel, PrivateAttr

from holdfast.core.base.names import PersonName
from holdfast.core.mac.starts import START_WITHIN


class PersonInput(BaseModel):
    """Base class of a workflow's only argument, which names the person who asked for the work.

    class Research(PersonInput):
        topic: str
    """

    VOUCHED: ClassVar[bool] = True
    """Identifies the class for the payload converter."""

    by: PersonName = ""
    """The person who asked; a claim, unless `holdfast.vouch_for` was called for it."""
    issued_at: datetime | None = None
    """When a process vouched for the person; set by `vouch_for`."""
    first_run_id: str = ""
    """The chain of Temporal runs that the proof is bound to; set by `carried`."""
    _vouched: bool = PrivateAttr(default=False)
    """Our own process vouches for it, or it bore a valid seal."""

    def vouched(self, by: str, *, at: datetime) -> Self:
        """Return a copy that the payload converter seals.

        Args:
            by: The person whom the calling process has authenticated.
            at: Now.
        """
        made = type(self).model_validate({**dict(self), "by": by, "issued_at": at, "first_run_id": ""})
        made._vouched = True
        return made

    def proven(self, *, first_run_id: str, started_at: datetime, continued: bool) -> bool:
        """Return whether the seal proves the person in this Temporal run.

        Args:
            first_run_id: Temporal's first execution run id.
            started_at: When the start of this Temporal run reached Temporal.
            continued: This Temporal run continues another one.
        """
        if not self._vouched:
            return False
        if self.first_run_id:
            return self.first_run_id == first_run_id
        return not continued and self.issued_at is not None and abs(started_at - self.issued_at) <= START_WITHIN

    def in_chain(self, *, first_run_id: str, proven: bool) -> Self:
        """Return a copy for the next Temporal run of the chain, which keeps the proof if there is one."""
        made = self.model_copy(update={"first_run_id": first_run_id if proven else ""})
        made._vouched = proven
        return made


def is_person_input(kind: Any) -> bool:
    """Return whether a type is a `PersonInput`."""
    return getattr(kind, "VOUCHED", False) is True
