"""Checks arguments that people have edited against a tool's JSON schema, within the workflow, at a bounded cost.

1. Regular expressions run in linear time (`holdfast.core.base.patterns`). Expressions that this engine does not support
   are left to the activity, in which the tool's own types parse the arguments strictly.
2. A check takes a bounded number of steps, because recursive alternatives would double the number at each level.
3. Nothing is fetched: references to other documents are not resolved.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from temporalio import workflow

from holdfast.core.base.canonical import exact_json
from holdfast.core.base.patterns import PatternInvalid, matches

STEPS = 60_000
"""Maximum number of steps of a check, one for each keyword applied to a value; they take about half a second."""

_ERROR_CHARS = 10_000_000
"""Maximum length of all error messages together: each repeats the value that it is about."""

_Check = Callable[[Any, Any, Any, Mapping[str, Any]], Iterable[Any] | None]


class TooComplex(Exception):
    """The check takes too many steps."""


class _Steps:
    """Counts the steps of one check. The library passes it along as the format checker, which is otherwise unused."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._steps, self._chars = 0, 0
        self.names_patterns = "patternProperties" in repr(schema)

    def take(self) -> None:
        self._steps += 1
        if self._steps > STEPS:
            raise TooComplex

    def failed(self, error: Any) -> None:
        self._chars += len(error.message)
        if self._chars > _ERROR_CHARS:
            raise TooComplex

    def check(self, value: Any, format: str) -> None:
        """Accept any value, as the library does by itself."""


def unfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Return the reason that a value does not fit a schema, with the path of the problem; empty if it fits."""
    with workflow.unsafe.imports_passed_through():
        import jsonschema  # here, because few processes ever need it
        from referencing import Registry
    kind = _bounded(jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator))
    try:
        error = jsonschema.exceptions.best_match(
            kind(schema, format_checker=_Steps(schema), registry=Registry()).iter_errors(value)
        )
    except (TooComplex, RecursionError):
        return "arguments: they are too complex to be checked here; approve the call as it is, or deny it"
    except Exception as problem:  # the schema cannot be used; an exception here would fail the workflow task
        return f"arguments: they cannot be checked by the tool's schema ({type(problem).__name__})"
    if error is None:
        return ""
    path = ".".join(str(part) for part in error.absolute_path)
    return f"arguments{'.' if path else ''}{path}: {error.message}"[:500]


@lru_cache(maxsize=16)
def _bounded(kind: Any) -> Any:
    """Return a validator class that counts its steps and replaces the checks that do not run in linear time."""
    import jsonschema

    own = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    own["additionalProperties"] = _additional_properties
    checks = {**kind.VALIDATORS, **own}
    if unevaluated := checks.get("unevaluatedProperties"):
        checks["unevaluatedProperties"] = _without_patterns(unevaluated)
    extend: Callable[[Any, Any], Any] = jsonschema.validators.extend
    return extend(kind, {name: _counted(check) for name, check in checks.items()})


def _counted(check: _Check) -> _Check:
    def counted(validator: Any, expected: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        validator.format_checker.take()
        for error in check(validator, expected, value, schema) or ():
            validator.format_checker.failed(error)
            yield error

    return counted


def _without_patterns(check: _Check) -> _Check:
    """Reject patterns in a check of unevaluated properties, for which the library uses Python's engine."""

    def checked(validator: Any, expected: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Any] | None:
        if validator.format_checker.names_patterns:
            raise TooComplex
        return check(validator, expected, value, schema)

    return checked


def _matches(pattern: str, text: str, *, otherwise: bool) -> bool:
    try:
        return matches(pattern, text)
    except PatternInvalid:
        return otherwise


def _failed(message: str) -> Any:
    import jsonschema

    return jsonschema.ValidationError(message)


def _pattern(validator: Any, pattern: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(value, str) and not _matches(pattern, value, otherwise=True):
        yield _failed(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    for pattern, inner in patterns.items() if isinstance(value, dict) else ():
        for name, each in value.items():
            validator.format_checker.take()
            if _matches(pattern, name, otherwise=False):
                yield from validator.descend(each, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [
        name
        for name in value
        if name not in known and not any(_matches(each, name, otherwise=True) for each in patterns)
    ]
    if isinstance(allowed, dict):
        for name in others:
            yield from validator.descend(value[name], allowed, path=name)
    elif not allowed and others:
        names = ", ".join(repr(name) for name in sorted(others))
        verb = "was" if len(others) == 1 else "were"
        yield _failed(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _unique_items(validator: Any, unique: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if unique and isinstance(value, list) and len({exact_json(each) for each in value}) < len(value):
        yield _failed(f"{value!r} has non-unique elements")
