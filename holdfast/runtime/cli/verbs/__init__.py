"""The verbs: each reads or changes threads, writes what came of it, and returns the exit code.

JSON goes by the contract in the README; what people read may be worded anew at any time.
"""

from holdfast.runtime.cli.verbs.acting import Acting
from holdfast.runtime.cli.verbs.deciding import Deciding
from holdfast.runtime.cli.verbs.looking import Looking
from holdfast.runtime.cli.verbs.looping import Looping
from holdfast.runtime.cli.verbs.policies import Policies
from holdfast.runtime.cli.verbs.remembering import Remembering
from holdfast.runtime.cli.verbs.trusting import Trusting
from holdfast.runtime.cli.verbs.upkeep import Upkeep


class Verbs(Looping, Acting, Deciding, Looking, Policies, Remembering, Trusting, Upkeep):
    """All of them, for one invocation of the CLI."""


__all__ = ["Verbs"]
