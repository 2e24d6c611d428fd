"""The base of every model that is persisted or crosses a process boundary, and its canonical encoding."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable pydantic model.

    Unknown fields are ignored on decoding, so that an older worker can read what a newer one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Sealed(Frozen):
    """A model that only our own processes may have made: what is not sealed with a fleet key is not decoded as one."""

    SEALED: ClassVar[bool] = True
