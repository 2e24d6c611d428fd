"""Callers of the gateway: the files that list them, and signed requests with a fake clock."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.client.signed_requests import NONCE, sign_request
from holdfast.core.authority.policy import Approver, Policy
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.errors import SettingsError
from holdfast.gateway import signed_requests
from holdfast.gateway.callers import Callers, CallersFile, KeyHolder, Token, read_callers
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.signed_requests import SignedRequests
from tests.support.serving import sha256

KEY = encode_key(b"k" * 32)
OTHER = encode_key(b"o" * 32)


def callers() -> Callers:
    """Return Alice, with a key."""
    return Callers(CallersFile(keys=(KeyHolder(name="alice", key=public_key(KEY), scopes=("read",)),)))


def test_tokens_are_found_by_their_digest() -> None:
    """The file has digests; an unlisted token is rejected, and so is a digest used as a token."""
    known = Callers(CallersFile(tokens=(Token(name="alice", sha256=sha256("secret"), scopes=("decide",)),)))

    caller = known.with_token("secret")
    assert caller is not None
    assert (caller.name, caller.scopes) == ("alice", ("decide",))
    assert known.with_token(sha256("secret")) is None
    assert known.with_token("") is None


def test_a_token_is_for_threads_that_begin_as_it_says() -> None:
    """Without `threads` a token reaches every thread, as before; with it, only threads with these prefixes."""
    token = Token(name="alice", sha256=sha256("secret"), scopes=("read",))
    narrow = token.model_copy(update={"threads": ("hr-", "it/")})

    assert token.caller.reaches("anything")
    assert [narrow.caller.reaches(thread) for thread in ("hr-1", "it/1", "hr", "it", "x-hr-1", "HR-1")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_the_policys_approvers_may_call_with_their_keys() -> None:
    """An approver needs no entry in the file and may do everything except read encrypted values."""
    policy = Policy(approvers=(Approver(name="alice", keys=(public_key(KEY),)),))

    caller = Callers(CallersFile(), policy).with_key(public_key(KEY))
    assert caller is not None
    assert (caller.name, caller.scopes) == ("alice", ("decide", "say", "read"))


def test_one_key_has_one_name() -> None:
    """A key that two people share is rejected, as it would prove nothing."""
    policy = Policy(approvers=(Approver(name="bob", keys=(public_key(KEY),)),))
    file = CallersFile(keys=(KeyHolder(name="alice", key=public_key(KEY), scopes=("read",)),))

    with pytest.raises(SettingsError, match="alice and of bob"):
        Callers(file, policy)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no caller could use"),
        ("tokens: [{name: a, sha256: hunter2, scopes: [read]}]", "sha256"),
        ("tokens: [{name: a, sha256: " + "0" * 64 + ", scopes: [root]}]", "scopes"),
        ("tokens: [{name: a, token: hunter2, scopes: [read]}]", "token"),
        ("tokens: [{name: 'a b', sha256: " + "a" * 64 + ", scopes: [read]}]", "name"),
        ("tokens: [", "line 1"),
        ("[]", "cannot be used|no caller"),
        ("tokens: [{name: a, sha256: " + "a" * 64 + ", scopes: [codec], threads: [b-]}]", "codec"),
        ("tokens: [{name: a, sha256: " + "a" * 64 + ", scopes: [doctor], threads: [b-]}]", "doctor"),
        ("tokens: [{name: a, sha256: " + "a" * 64 + ", scopes: [list], threads: []}]", "threads"),
        ("tokens: [{name: a, sha256: " + "a" * 64 + ", scopes: [list], threads: [\"x' OR 'a'='a\"]}]", "threads"),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, content: str, words: str) -> None:
    """The gateway does not start, as the file might admit unintended callers; the error shows no secret."""
    file = tmp_path / "tokens.yaml"
    file.write_text(content)

    with pytest.raises(SettingsError, match=words) as caught:
        read_callers(file, None)
    assert "hunter2" not in str(caught.value)


AUDIENCE = "https://gateway.example"


class Clock:
    """A clock that a test sets."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def test_only_expired_nonces_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of nonces is bounded; when it is full, only expired nonces are dropped."""
    import time

    began = time.time()
    clock = Clock(began)
    authenticator = SignedRequests(callers(), AUDIENCE, now=clock)
    monkeypatch.setattr(signed_requests, "NONCES", 2)
    requests: list[dict[str, str]] = [sign_request(KEY, "GET", "/pending", audience=AUDIENCE) for _ in range(3)]
    assert [authenticator.caller("GET", "/pending", headers).name for headers in requests[:2]] == ["alice", "alice"]
    with pytest.raises(HTTPProblem) as full:
        authenticator.caller("GET", "/pending", requests[2])
    assert full.value.status == 503

    clock.at = began + 299
    for headers in requests[:2]:
        with pytest.raises(HTTPProblem, match="used before"):
            authenticator.caller("GET", "/pending", headers)


def test_a_request_signed_before_the_gateway_started_is_rejected() -> None:
    """After a restart, the nonces used earlier are unknown."""
    import time

    authenticator = SignedRequests(callers(), AUDIENCE, now=Clock(time.time() + 60))

    with pytest.raises(HTTPProblem, match="before the gateway began"):
        authenticator.caller("GET", "/pending", sign_request(KEY, "GET", "/pending", audience=AUDIENCE))


@pytest.mark.parametrize("change", [{NONCE: "short"}, {"Holdfast-Timestamp": "²"}, {"Holdfast-Key": public_key(OTHER)}])
def test_an_altered_header_is_rejected(change: dict[str, Any]) -> None:
    """The signature covers timestamp, nonce and key."""
    headers = sign_request(KEY, "GET", "/pending", audience=AUDIENCE) | change

    with pytest.raises(HTTPProblem) as refused:
        SignedRequests(callers(), AUDIENCE).caller("GET", "/pending", headers)
    assert refused.value.status == 401
