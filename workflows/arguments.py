"""What lets a workflow say what is wrong with its arguments, instead of failing its first task for ever."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def any_number(function: FunctionT) -> FunctionT:
    """Show the SDK a workflow's function without its `*more`, so that it decodes the one argument by its type.

    For a function with `*more` the SDK uses no types; for one without, it calls it with any number of arguments all the
    same, which fails the workflow task and not the run.
    """
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    vars(function)["__signature__"] = signature.replace(parameters=named)
    return function
