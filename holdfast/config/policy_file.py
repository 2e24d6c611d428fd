"""Reads a policy file, YAML or JSON, into `holdfast.core.authority.policy.Policy` and locates every problem in it.

1. The file has the fields of the policy's models. In addition, a rule may begin with its verdict, `- ask: pay`, and a
   duration may be written as `4h`.
2. Nothing is guessed: an unknown field, a repeated key or an unknown name is an error.
3. All problems are reported at once.
"""

from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.config.marked_yaml import MarkedYaml, ValuePath, read_yaml
from holdfast.config.policy_forms import (
    VERDICTS,
    AmountsForm,
    ApproverForm,
    EscalationForm,
    ExtensionsForm,
    GatewayForm,
    PolicyForm,
    RuleForm,
    SignerForm,
    TermsForm,
    suggestion,
)
from holdfast.config.policy_people import people_problems
from holdfast.core.authority.policy import Policy
from holdfast.core.base.models import DEFINING
from holdfast.errors import PolicyError, PolicyProblem

MAX_BYTES = 1_000_000


def load_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        PolicyError: The file cannot be read, or is invalid; the error lists every problem.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError([PolicyProblem(name, 0, 0, "", f"the file cannot be read: {error.strerror}")]) from None
    return read_policy(data, name=name)


def read_policy(data: bytes, *, name: str) -> Policy:
    """Read the bytes of a policy file.

    Args:
        data: YAML in UTF-8. JSON is YAML too, except for control characters and escaped surrogate pairs.
        name: The file's name, for errors.

    Raises:
        PolicyError: The policy is invalid; the error lists every problem.
    """
    if len(data) > MAX_BYTES:
        raise PolicyError([PolicyProblem(name, 0, 0, "", f"the file has more than {MAX_BYTES:,} bytes")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise PolicyError([PolicyProblem(name, line, column, "", "the file is not UTF-8")]) from None
    marked = read_yaml(text)
    problems = [PolicyProblem(name, *fault.mark, field_path(fault.path), fault.message) for fault in marked.faults]
    if marked.readable and marked.value is None and not problems:
        problems = [PolicyProblem(name, 0, 0, "", "the file is empty; write {} for a policy without rules")]
    elif marked.readable:
        policy, located = _read(marked)
        if policy and not problems:
            return policy
        reported = {(problem.line, problem.column) for problem in problems}
        for path, message, key in located:
            written = _path_in_file(path, marked)
            line, column = marked.mark(written, key=key)
            if (line, column) not in reported:
                problems.append(PolicyProblem(name, line, column, field_path(written), message))
    raise PolicyError(sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.message)))


def field_path(path: ValuePath) -> str:
    """Format a path as people write it: `rules[3].when`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


FoundProblem = tuple[ValuePath, str, bool]
"""The path to the value, the message, and whether the problem is the field's name."""


_FIELDS: dict[str, type[BaseModel]] = {
    "": PolicyForm,
    "rules": RuleForm,
    "terms": TermsForm,
    "escalate": EscalationForm,
    "approvers": ApproverForm,
    "gateways": GatewayForm,
    "signers": SignerForm,
    "extensions": ExtensionsForm,
    "most": AmountsForm,
}


def _read(marked: MarkedYaml) -> tuple[Policy | None, list[FoundProblem]]:
    """Return the policy, or the problems found."""
    people: list[FoundProblem] = [(path, message, False) for path, message in people_problems(marked.value)]
    try:
        filed = PolicyForm.model_validate(marked.value, context=DEFINING)
    except ValidationError as error:
        return None, [*(_translate(problem, marked) for problem in error.errors(include_url=False)), *people]
    if people:
        return None, people
    try:
        return Policy.model_validate(filed.model_dump(), context=DEFINING), []
    except ValidationError as error:
        return None, [_translate(problem, marked) for problem in error.errors(include_url=False)]


def _translate(problem: ErrorDetails, marked: MarkedYaml) -> FoundProblem:
    """Translate a problem that pydantic reports."""
    path, message = tuple(problem["loc"]), problem["msg"]
    match problem["type"]:
        case "extra_forbidden":
            name = str(path[-1])
            message = f"there is no such field{suggestion([name], _fields_at(path[:-1]))}"
            return path, message, True
        case "missing":
            return path, "it is missing", False
        case "tuple_type":
            return path, "it has to be a list", False
        case "model_type" | "model_attributes_type" | "dict_type":
            return path, "it has to consist of fields with values, as in `name: alice`", False
        case "string_type":
            return path, "it has to be text; put quotes around what YAML reads as another type", False
        case "string_pattern_mismatch":
            message = "it is not a name: use 1 to 100 letters, digits and . _ @ -, beginning with a letter or digit"
            return path, message, False
        case "value_error":
            return _locate(path, message.removeprefix("Value error, "), marked)
    return path, message.replace("Input should", "it has to", 1), False


def _locate(path: ValuePath, message: str, marked: MarkedYaml) -> FoundProblem:
    """Locate a model's error by the field at the start of its message: `terms: …`, `rules.3.terms: …`."""
    head, colon, rest = message.partition(": ")
    below = tuple(int(part) if part.isdigit() else part for part in head.split("."))
    if colon and _path_in_file((*path, *below), marked) in marked.marks:
        return (*path, *below), rest, False
    return path, message, False


def _path_in_file(path: ValuePath, marked: MarkedYaml) -> ValuePath:
    """Return the path in the file, in which one field may hold both a rule's tool and its verdict."""
    if path and path[-1] in ("tool", "verdict") and path not in marked.marks:
        for verdict in VERDICTS:
            if (*path[:-1], verdict) in marked.marks:
                return (*path[:-1], verdict)
    return path


def _fields_at(path: ValuePath) -> list[str]:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    fields = list(_FIELDS[name].model_fields) if name in _FIELDS else []
    return [*fields, *VERDICTS] if name == "rules" else fields
