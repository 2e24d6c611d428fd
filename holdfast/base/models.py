"""The base classes of every model that is persisted or crosses a process boundary."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable pydantic model.

    Decoding ignores unknown fields, so that an older worker can read what a newer one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Sealed(Frozen):
    """A model that only our own processes can create: a payload without a fleet key's seal does not decode as one."""

    SEALED: ClassVar[bool] = True
