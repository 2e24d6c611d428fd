"""`NotDone`: an exception with which a tool states that its effect did not happen.

After any other exception from a tool with an effect, the outcome is unknown: the request may have arrived although no
response came. Then the tool's `check` or a person has to resolve the call.
"""

from collections.abc import Iterator

Exceptions = tuple[type[BaseException], ...]

REPEATABLE: Exceptions = (Exception,)
"""For built-in tools whose effect is a state, such as the text of a file: after any failure, the LLM can repeat the
call under another key without changing anything twice."""


class NotDone(Exception):
    """Raised by a tool: the effect did not happen, and nothing of this call can still cause it. The call has failed,
    and the LLM reads the message.
    """


class NotSent(NotDone):
    """Raised by a tool that sends requests: this attempt has sent none. One before it, with the same key, may have."""


def says_not_done(error: BaseException, declared: Exceptions = (), *, repeated: bool = False) -> bool:
    """Whether an exception means that the effect did not happen: `NotDone`, one that the tool declares, or a group of
    only such exceptions.

    Args:
        error: The exception that the tool's function raised.
        declared: The tool's `@tool(not_done_on=…)`.
        repeated: Whether an attempt before this one may have had the effect, so that `NotSent` says nothing.
    """
    leaves = list(_leaves(error))
    if repeated and any(isinstance(each, NotSent) for each in leaves):
        return False
    return all(isinstance(each, (NotDone, *declared)) for each in leaves)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
