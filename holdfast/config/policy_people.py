"""Checks the people in a policy file: repeated or unknown names, and quorums that cannot be reached.

It reads the file's plain values, so that an invalid field elsewhere does not hide these problems. Nothing is concluded
from an unreadable value, which is reported elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.config.marked_yaml import ValuePath
from holdfast.config.policy_forms import suggestion
from holdfast.core.authority.policy import Name

_NAME: TypeAdapter[str] = TypeAdapter(Name)
MOST = 1_000
"""The most entries of a list that are compared."""

Problem = tuple[ValuePath, str]
NameAt = tuple[ValuePath, str]


@dataclass(frozen=True)
class _People:
    """The readable approvers of a file."""

    names: list[str]
    roles: dict[str, set[str]]
    """By the approver's name."""
    with_keys: bool
    complete: bool
    """Whether all of them can be read; otherwise an unknown name may be one of the unreadable ones."""

    @property
    def known(self) -> list[str]:
        roles = {role: None for held in self.roles.values() for role in sorted(held)}
        return [*dict.fromkeys(self.names), *roles]

    def entitled(self, names: list[str]) -> list[str]:
        """Return the approvers with these names and roles; all approvers if `names` is empty."""
        return [name for name, roles in self.roles.items() if not names or name in names or roles & set(names)]


def people_problems(policy: Any) -> Iterator[Problem]:
    """Find every problem of people in the plain value of a policy file."""
    if not isinstance(policy, dict):
        return
    people = _people(policy.get("approvers"))
    yield from _clashes(people)
    if people.names and people.complete:
        extensions = policy.get("extensions")
        yield from _unknown(people, _names_in(extensions, ("extensions",), "by"))
        for path, terms in _all_terms(policy):
            yield from _terms_problems(people, path, terms)
    some_key = people.with_keys or not people.complete or policy.get("gateways")
    if policy.get("signatures") == "required" and not some_key:
        yield ("signatures",), "they are required, but no approver has a key"


def _people(approvers: Any) -> _People:
    names: list[str] = []
    roles: dict[str, set[str]] = {}
    complete, with_keys = approvers is None or isinstance(approvers, list), False
    for person in _listed(approvers):
        name = _name(person.get("name")) if isinstance(person, dict) else None
        if name is None:
            complete = False
            continue
        listed = person.get("roles") or []
        readable = [_name(role) for role in _listed(listed)]
        complete = complete and isinstance(listed, list) and None not in readable
        with_keys = with_keys or bool(person.get("keys"))
        names.append(name)
        roles.setdefault(name, set()).update(role for role in readable if role is not None)
    return _People(names, roles, with_keys, complete)


def _clashes(people: _People) -> Iterator[Problem]:
    held = {role for roles in people.roles.values() for role in roles}
    for name in dict.fromkeys(people.names):
        if people.names.count(name) > 1:
            yield ("approvers",), f"{name} is there twice"
        if name in held:
            yield ("approvers",), f"{name} is a person and a role"


def _terms_problems(people: _People, path: ValuePath, terms: dict[str, Any]) -> Iterator[Problem]:
    by, veto = _names_in(terms, path, "by"), _names_in(terms, path, "veto")
    later = [
        each
        for number, step in enumerate(_listed(terms.get("escalate")))
        for each in _names_in(step, (*path, "escalate", number), "by")
    ]
    wrong = list(_unknown(people, [*by, *veto, *later]))
    yield from wrong
    quorum = terms.get("quorum", 1)
    readable = _all_read(terms.get("by")) and all(
        isinstance(step, dict) and _all_read(step.get("by")) for step in _listed(terms.get("escalate"))
    )
    if wrong or not readable or not isinstance(quorum, int):
        return
    able = len(people.entitled([name for _, name in (*by, *later)] if by else []))
    if able < quorum:
        yield (*path, "quorum"), f"the quorum is {quorum}, but only {able} may decide"


def _unknown(people: _People, names: list[NameAt]) -> Iterator[Problem]:
    for path, name in names:
        if name not in people.known:
            yield path, f"there is no approver or role {name!r}{suggestion([name], people.known)}"


def _all_terms(policy: dict[str, Any]) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    terms = policy.get("terms")
    yield ("terms",), terms if isinstance(terms, dict) else {}
    for number, rule in enumerate(_listed(policy.get("rules"))):
        if isinstance(rule, dict) and isinstance(rule.get("terms"), dict):
            yield ("rules", number, "terms"), rule["terms"]


def _names_in(owner: Any, path: ValuePath, field: str) -> list[NameAt]:
    """Return the readable names of a list, with their paths."""
    listed = _listed(owner.get(field)) if isinstance(owner, dict) else []
    return [((*path, field, number), name) for number, value in enumerate(listed) if (name := _name(value))]


def _all_read(listed: Any) -> bool:
    return listed is None or (isinstance(listed, list) and all(_name(each) for each in listed))


def _listed(value: Any) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _name(value: Any) -> str | None:
    try:
        return _NAME.validate_python(value) if isinstance(value, str) else None
    except ValidationError:
        return None
