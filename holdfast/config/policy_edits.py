"""Adds and removes the keys of approvers in the text of a policy file, and leaves every other character as it is.

The result is read again: unless it is exactly the policy before with that one change, nothing is written.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from holdfast.config.policy_file import load_policy, read_policy
from holdfast.core.authority.policy import Approver, Policy
from holdfast.core.authority.signatures import check_key
from holdfast.errors import PolicyError, SettingsError

Edit = tuple[int, int, str]
"""The characters from the first index up to the second one, and the text in their place."""


def add_key(path: Path, name: str, key: str, *, new: bool = False) -> None:
    """Add a public key of an approver to a policy file.

    Args:
        path: The policy file.
        name: The approver.
        key: The public key, `ed25519:…`.
        new: Add the approver, too, if the policy does not name them.

    Raises:
        PolicyError: The file is no policy.
        SettingsError: The approver, the key or the form of the file does not allow it; nothing was written.
    """
    before = load_policy(path)
    person = before.approver(name)
    if owner := _owner(before, key):
        raise SettingsError(f"{path} lists this key already, as one of {owner}.")
    if person is None and not new:
        known = ", ".join(each.name for each in before.approvers) or "nobody"
        raise SettingsError(f"{path} names no approver {name} (it names {known}). --new adds one, who may then decide.")
    if person is None and not before.approvers:
        raise SettingsError(f"{path} names no approvers, so anybody may decide. Name the people in `approvers` first.")
    keys = (*(person.keys if person else ()), key)
    wanted = _with_keys(before, name, keys, roles=person.roles if person else ())
    _rewrite(path, lambda text: _insertion(text, name, key), wanted)


def remove_key(path: Path, name: str, key: str) -> None:
    """Remove a public key of an approver from a policy file.

    Raises:
        PolicyError: The file is no policy.
        SettingsError: It does not list the key, or its form does not allow it; nothing was written.
    """
    before = load_policy(path)
    person = before.approver(name)
    if person is None or key not in person.keys:
        raise SettingsError(f"{path} does not list {key} as a key of {name}.")
    keys = tuple(each for each in person.keys if each != key)
    _rewrite(path, lambda text: _removal(text, name, key), _with_keys(before, name, keys, roles=person.roles))


def _owner(policy: Policy, key: str) -> str:
    holders = [(each.name, each.keys) for each in policy.approvers]
    holders += [(each.name, each.keys) for each in policy.gateways]
    return next((name for name, keys in holders if key in keys), "")


def _with_keys(policy: Policy, name: str, keys: tuple[str, ...], *, roles: tuple[str, ...]) -> Policy:
    """Return the policy in which an approver has these keys."""
    changed = Approver(name=name, roles=roles, keys=keys)
    known = policy.approver(changed.name) is not None
    people = [changed if each.name == changed.name else each for each in policy.approvers]
    people += [] if known else [changed]
    try:
        return Policy.model_validate(policy.model_dump() | {"approvers": [each.model_dump() for each in people]})
    except ValueError as error:
        raise SettingsError(f"the policy would not hold any more: {error}") from None


def _rewrite(path: Path, edit: Callable[[str], Edit | None], wanted: Policy) -> None:
    """Apply an edit to a file, if the policy is then the wanted one."""
    text = path.read_bytes().decode("utf-8-sig")
    found = edit(text)
    written = text[: found[0]] + found[2] + text[found[1] :] if found else ""
    with suppress(PolicyError):
        if found and read_policy(written.encode(), name=str(path)) == wanted:
            _replace(path, written)
            return
    raise SettingsError(f"{path} is written in a form that is not edited here. Change the approver's `keys` by hand.")


def _replace(path: Path, text: str) -> None:
    """Replace a file's content at once; its permissions stay."""
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        Path(name).chmod(target.stat().st_mode & 0o777)
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None


def _insertion(text: str, name: str, key: str) -> Edit | None:
    """Return the edit that adds a key; None for a form that cannot be edited."""
    approvers = _field(yaml.compose(text, Loader=yaml.SafeLoader), "approvers")
    if not isinstance(approvers, yaml.SequenceNode):
        return None
    person = _person(approvers, name)
    if person is None:
        return _after(text, approvers, f'{{name: {name}, keys: ["{key}"]}}')
    keys = _field(person, "keys")
    if isinstance(keys, yaml.SequenceNode):
        return _after(text, keys, f'"{key}"')
    if person.flow_style:
        end = person.end_mark.index - 1
        return end, end, f', "keys": ["{key}"]'
    last, indent = person.value[-1][1], person.value[0][0].start_mark.column
    end = _end_of_line(text, _end(last))
    return end, end, f'\n{" " * indent}keys: ["{key}"]'


def _removal(text: str, name: str, key: str) -> Edit | None:
    """Return the edit that removes a key; None for a form that cannot be edited."""
    person = _person(_field(yaml.compose(text, Loader=yaml.SafeLoader), "approvers"), name)
    keys = _field(person, "keys") if person else None
    if not isinstance(keys, yaml.SequenceNode):
        return None
    at = next((number for number, each in enumerate(keys.value) if each.value == key), None)
    if at is None:
        return None
    node = keys.value[at]
    if len(keys.value) == 1:
        return keys.start_mark.index, _end(node) + (text[_end(node) :].index("]") + 1 if keys.flow_style else 0), "[]"
    if not keys.flow_style:
        start = text.rindex("\n", 0, node.start_mark.index)
        return start, _end_of_line(text, _end(node)), ""
    if at:
        return _end(keys.value[at - 1]), _end(node), ""
    return node.start_mark.index, keys.value[1].start_mark.index, ""


def _after(text: str, listed: yaml.SequenceNode, item: str) -> Edit:
    """Return the edit that appends an item to a list."""
    if listed.flow_style or not listed.value:
        end = listed.end_mark.index - 1
        return end, end, f", {item}" if listed.value else item
    column = listed.start_mark.column
    end = _end_of_line(text, _end(listed.value[-1]))
    return end, end, f"\n{' ' * column}- {item}"


def _end(node: yaml.Node) -> int:
    """Return where the last value below a node ends: YAML extends a block to the next line with content."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _field(node: Any, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if getattr(key, "value", None) == name), None)


def _person(approvers: yaml.Node | None, name: str) -> yaml.MappingNode | None:
    people = approvers.value if isinstance(approvers, yaml.SequenceNode) else []
    for each in people:
        written = _field(each, "name")
        if isinstance(written, yaml.ScalarNode) and Approver(name=written.value).name == name:
            return each if isinstance(each, yaml.MappingNode) else None
    return None


def checked_key(text: str) -> str:
    """Return a public key unchanged if it is valid.

    Raises:
        SettingsError: It is not.
    """
    try:
        return check_key(text)
    except ValueError as error:
        raise SettingsError(f"this is not a public key: {error}") from None
