"""`NotDone`: a tool's statement that it raises before its effect, so that the effect did not happen.

Any other exception out of a tool with an effect says nothing about that: no answer came, but the request may have
arrived. Such a call is looked up, or a person is asked.
"""

from collections.abc import Iterator

Exceptions = tuple[type[BaseException], ...]

REPEATABLE: Exceptions = (Exception,)
"""For tools of ours whose effect is a state, such as the text of a file: however a call has failed, another one by the
LLM, which has another key, changes nothing twice."""


class NotDone(Exception):
    """Raised by a tool: the effect did not happen, and nothing of this call can still cause it. The call has failed,
    and the LLM reads the message.
    """


def says_not_done(error: BaseException, declared: Exceptions = ()) -> bool:
    """Whether an exception says that the effect did not happen: `NotDone`, one that the tool declares, or a group of
    such exceptions and no others.

    Args:
        error: What the tool's function raised.
        declared: `@tool(not_done_on=…)`.
    """
    return all(isinstance(each, (NotDone, *declared)) for each in _leaves(error))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
