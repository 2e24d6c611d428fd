"""Checks the people in a policy file: names that are there twice or nowhere, and quorums that too few can reach.

It reads the file's plain values, so that an invalid field elsewhere does not hide these problems. What cannot be read
has a problem of its own, and nothing is concluded from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.config.marked_yaml import Path as Place
from holdfast.config.policy_forms import meant
from holdfast.core.authority.policy import Name

_NAME: TypeAdapter[str] = TypeAdapter(Name)
MOST = 1_000
"""The most entries of a list that are compared."""

Problem = tuple[Place, str]
Named = tuple[Place, str]


@dataclass(frozen=True)
class _People:
    """The approvers of a file, as far as they can be read."""

    names: list[str]
    roles: dict[str, set[str]]
    """By the approver's name."""
    with_keys: bool
    complete: bool
    """Whether all of them can be read; otherwise a name that is not here may be one of the others."""

    @property
    def known(self) -> list[str]:
        roles = {role: None for held in self.roles.values() for role in sorted(held)}
        return [*dict.fromkeys(self.names), *roles]

    def entitled(self, who: list[str]) -> list[str]:
        """The approvers whom these names and roles denote; all of them if there are none."""
        return [name for name, roles in self.roles.items() if not who or name in who or roles & set(who)]


def people_problems(policy: Any) -> Iterator[Problem]:
    """Find every problem of people in the plain value of a policy file."""
    if not isinstance(policy, dict):
        return
    people = _people(policy.get("approvers"))
    yield from _clashes(people)
    if people.names and people.complete:
        extensions = policy.get("extensions")
        yield from _unknown(people, _named(extensions, ("extensions",), "by"))
        for place, terms in _all_terms(policy):
            yield from _terms_problems(people, place, terms)
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
        held = person.get("roles") or []
        read = [_name(role) for role in _listed(held)]
        complete = complete and isinstance(held, list) and None not in read
        with_keys = with_keys or bool(person.get("keys"))
        names.append(name)
        roles.setdefault(name, set()).update(role for role in read if role is not None)
    return _People(names, roles, with_keys, complete)


def _clashes(people: _People) -> Iterator[Problem]:
    held = {role for roles in people.roles.values() for role in roles}
    for name in dict.fromkeys(people.names):
        if people.names.count(name) > 1:
            yield ("approvers",), f"{name} is there twice"
        if name in held:
            yield ("approvers",), f"{name} is a person and a role"


def _terms_problems(people: _People, place: Place, terms: dict[str, Any]) -> Iterator[Problem]:
    by, veto = _named(terms, place, "by"), _named(terms, place, "veto")
    later = [
        each
        for number, step in enumerate(_listed(terms.get("escalate")))
        for each in _named(step, (*place, "escalate", number), "by")
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
        yield (*place, "quorum"), f"the quorum is {quorum}, but only {able} may decide"


def _unknown(people: _People, named: list[Named]) -> Iterator[Problem]:
    for place, name in named:
        if name not in people.known:
            yield place, f"there is no approver or role {name!r}{meant([name], people.known)}"


def _all_terms(policy: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    terms = policy.get("terms")
    yield ("terms",), terms if isinstance(terms, dict) else {}
    for number, rule in enumerate(_listed(policy.get("rules"))):
        if isinstance(rule, dict) and isinstance(rule.get("terms"), dict):
            yield ("rules", number, "terms"), rule["terms"]


def _named(owner: Any, place: Place, field: str) -> list[Named]:
    """The names in a list of names that can be read, with their places."""
    listed = _listed(owner.get(field)) if isinstance(owner, dict) else []
    return [((*place, field, number), name) for number, given in enumerate(listed) if (name := _name(given))]


def _all_read(listed: Any) -> bool:
    return listed is None or (isinstance(listed, list) and all(_name(each) for each in listed))


def _listed(value: Any) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _name(value: Any) -> str | None:
    try:
        return _NAME.validate_python(value) if isinstance(value, str) else None
    except ValidationError:
        return None
