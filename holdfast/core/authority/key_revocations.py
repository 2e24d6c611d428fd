"""Signed statements that revoke a key in a run."""

from typing import ClassVar

from holdfast.core.authority.policy import Key
from holdfast.core.authority.statements import Reasoned


class KeyRevocation(Reasoned):
    """An approver's revocation of a key; the JSON of the signal and update `revoke_key`. It is final: a revoked key
    stays revoked.
    """

    FORMAT: ClassVar[str] = "key-revocation/1"

    revoked: Key
    """The public key of an approver or a gateway, as the policy lists it."""
