"""Callers of the gateway and their scopes: owners of bearer tokens, and approvers with their public keys.

    tokens:
      - {name: alice, sha256: 5e88…, scopes: [decide, say, read]}
      - {name: billing, sha256: 9f86…, scopes: [start, read, cancel], threads: [billing-]}
    keys:
      - {name: bob, key: "ed25519:…", scopes: [decide, read]}
    slack: {U02ABCDEF: alice}

Tokens are stored as SHA-256 digests: a token is 32 random bytes, so its digest does not reveal it. The keys of the
policy's approvers are valid, too, without being listed. A decision is made in the name of the verified token or key,
never in a name from the request.
"""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from holdfast.config.policy_file import load_policy
from holdfast.core.authority.policy import Key, Name, Policy
from holdfast.errors import SettingsError

Scope = Literal[
    "decide",
    "say",
    "read",
    "codec",
    "start",
    "list",
    "transcript",
    "artifacts",
    "delegate",
    "retry",
    "cancel",
    "pause",
    "wake",
    "publish",
    "refine",
    "extend",
    "schedule",
    "schedules",
    "fork",
    "memory",
    "doctor",
]
"""`decide` requests, `say`: send messages, `read` states, results, requests and events, `codec`: decrypt payloads,
`start` and `list` threads, read `transcript` and `artifacts`, `delegate` authority, `retry`, `cancel` runs,
`pause` and resume them, `wake` them and send them events, `publish` events, `refine` their tasks,
`extend` their budgets, `schedule`: add, pause, resume, trigger and delete schedules, `schedules`: list and read
them, `fork` threads and start their tasks again, which needs `start`, too, `memory`: browse, correct and remove the
memories that the agents of readable threads recall, `doctor`: see on the page what `holdfast doctor` finds on the
gateway's machine, such as paths, addresses and weak points of the installation."""

APPROVERS_MAY: tuple[Scope, ...] = ("decide", "say", "read")
"""The scopes of the keys of the policy's approvers."""

Scopes = Annotated[tuple[Scope, ...], Field(min_length=1)]


Prefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}$")]
"""A prefix of thread ids."""


_STRICT = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class _Entry(BaseModel):
    model_config = _STRICT

    name: Name
    """The caller's name, which becomes the `by` of a decision."""
    scopes: Scopes
    threads: Annotated[tuple[Prefix, ...], Field(min_length=1)] | None = None
    """Prefixes of the ids of the threads that the caller may access or start; None for all."""

    @model_validator(mode="after")
    def _can_be_restricted(self) -> Self:
        if self.threads is not None and "codec" in self.scopes:
            raise ValueError("the scope codec decrypts the payloads of every thread, so `threads` cannot restrict it")
        if self.threads is not None and "doctor" in self.scopes:
            raise ValueError("the scope doctor shows the whole installation, so `threads` cannot restrict it")
        return self

    @property
    def caller(self) -> "Caller":
        """The caller that this entry authenticates."""
        return Caller(self.name, self.scopes, self.threads or ())


class Token(_Entry):
    """A bearer token."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The SHA-256 digest of the token's text, in hex."""


class KeyHolder(_Entry):
    """A caller who signs requests with a key that the policy does not list."""

    key: Key


class Identity(_Entry):
    """A person whom the OpenID Connect provider identifies."""

    value: Annotated[str, Field(min_length=1, max_length=300)]
    """The value of the provider's claim."""


class OpenIDProvider(BaseModel):
    """An OpenID Connect provider, with which people sign in on the page."""

    model_config = _STRICT

    issuer: Annotated[str, Field(pattern=r"^(https://|http://(127\.0\.0\.1|localhost)[:/])[!-~]+$", max_length=500)]
    """The issuer's address, exactly as its tokens name it."""
    client_id: Annotated[str, Field(min_length=1, max_length=300)]
    claim: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_:./-]{0,99}$")] = "sub"
    """The claim that identifies a person: `sub`, or `email`, which the provider then must have verified."""
    people: Annotated[tuple[Identity, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        values = [person.value for person in self.people]
        if len(set(values)) < len(values):
            raise ValueError("people: a value is there twice")
        return self

    @property
    def name(self) -> str:
        """The provider's host, for people."""
        return urlsplit(self.issuer).netloc


class CallersFile(BaseModel):
    """The file that `HOLDFAST_GATEWAY_TOKENS` names."""

    model_config = _STRICT

    tokens: tuple[Token, ...] = ()
    keys: tuple[KeyHolder, ...] = ()
    openid: OpenIDProvider | None = None
    slack: dict[str, Name] = {}
    """Slack user ids, and the names of these people in the policy."""


@dataclass(frozen=True)
class Caller:
    """An authenticated caller."""

    name: str
    scopes: tuple[Scope, ...]
    threads: tuple[str, ...] = ()
    """Prefixes of the ids of the threads that the caller may access; empty for all threads."""

    def reaches(self, thread: str) -> bool:
        """Whether the caller may access a thread."""
        return not self.threads or thread.startswith(self.threads)


class Callers:
    """All callers with access to the gateway.

    Args:
        file: Tokens and further keys.
        policy: Its approvers may sign requests.

    Raises:
        SettingsError: One key has two names.
    """

    def __init__(self, file: CallersFile, policy: Policy | None = None) -> None:
        self._tokens = file.tokens
        self._slack = file.slack
        self.openid = file.openid
        """The provider with which people sign in; None for none."""
        self._keys: dict[str, Caller] = {}
        for key, caller in _keys(file, policy):
            if self._keys.setdefault(key, caller).name != caller.name:
                raise SettingsError(
                    f"{key} is the key of {self._keys[key].name} and of {caller.name}; give each their own"
                )

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes that at least one caller has."""
        return frozenset(scope for scopes in self._all_scopes() for scope in scopes)

    def _all_scopes(self) -> Iterator[tuple[Scope, ...]]:
        yield from (token.scopes for token in self._tokens)
        yield from (person.scopes for person in (self.openid.people if self.openid else ()))
        yield from (caller.scopes for caller in self._keys.values())

    def with_token(self, token: str) -> Caller | None:
        """Return the owner of a token. Takes the same time for right and wrong tokens."""
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        matching = [each for each in self._tokens if hmac.compare_digest(each.sha256, digest)]
        return matching[0].caller if matching else None

    def with_identity(self, value: str) -> Caller | None:
        """Return the person whom the OpenID Connect provider has identified by the value of its claim."""
        people = self.openid.people if self.openid else ()
        return next((each.caller for each in people if each.value == value), None)

    def with_key(self, key: str) -> Caller | None:
        """Return the owner of a public key. This proves nothing: check the signature."""
        return self._keys.get(key)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """Return the public keys of a caller."""
        return tuple(key for key, caller in self._keys.items() if caller.name == name)

    def with_slack_id(self, user: str) -> Caller | None:
        """Return the caller with a Slack user id."""
        name = self._slack.get(user)
        return Caller(name, ("decide",)) if name else None


def read_callers(tokens: Path | None, policy: Path | None) -> Callers:
    """Read the callers that these files name.

    Args:
        tokens: `HOLDFAST_GATEWAY_TOKENS`.
        policy: `HOLDFAST_POLICY`.

    Raises:
        SettingsError: The file cannot be used, or there is no caller.
        PolicyError: The policy is invalid.
    """
    callers = Callers(_read(tokens) if tokens else CallersFile(), load_policy(policy) if policy else None)
    if not callers.scopes:
        raise SettingsError(
            "no caller could use the gateway: it has no token and no approver's key. "
            "Name a file with tokens in HOLDFAST_GATEWAY_TOKENS (docs/how-to/gateway.md)."
        )
    return callers


def _read(path: Path) -> CallersFile:
    try:
        return CallersFile.model_validate(yaml.safe_load(path.read_text()) or {})
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"HOLDFAST_GATEWAY_TOKENS={path} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f", line {line + 1}" if line is not None else ""
        raise SettingsError(f"HOLDFAST_GATEWAY_TOKENS={path} is neither YAML nor JSON{where}.") from None
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise SettingsError(f"HOLDFAST_GATEWAY_TOKENS={path} cannot be used: {'; '.join(wrong)}.") from None


def _keys(file: CallersFile, policy: Policy | None) -> Iterator[tuple[str, Caller]]:
    for holder in file.keys:
        yield holder.key, holder.caller
    for approver in policy.approvers if policy else ():
        for key in approver.keys:
            yield key, Caller(approver.name, APPROVERS_MAY)
