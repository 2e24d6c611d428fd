"""A signed request is bound to one gateway: captured there, it is useless at another."""

import json
from uuid import uuid4

import pytest

from holdfast.client.signed_requests import DIGEST, audience_of, sign_request
from tests.integration.test_gateway import ALICE_KEY, AUDIENCE, approval, site
from tests.support.rig import StartRig


async def test_a_signature_for_one_gateway_is_rejected_by_another(rig: StartRig) -> None:
    """Gateway B rejects a request signed for gateway A, with any `Host`, and decides nothing."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting()
        path, body = gateway.path(run.id, "/decisions"), json.dumps(approval(request)).encode()
        for other in ("https://other.example", f"{AUDIENCE}:444", f"{AUDIENCE}/b", "http://gateway.example", ""):
            headers = sign_request(ALICE_KEY, "POST", path, body, audience=other)
            for host in ({}, {"Host": other.partition("://")[2] or "x"}):
                answer = await gateway.http.post(path, content=body, headers={**headers, **host})
                assert answer.status_code == 401, other
                assert AUDIENCE in answer.json()["detail"]
        assert (await run.query("state"))["status"] == "waiting_approval"

        headers = sign_request(ALICE_KEY, "POST", path, body, audience=f"{AUDIENCE.upper()}/")
        assert (await gateway.http.post(path, content=body, headers=headers)).status_code == 200


async def test_a_gateway_without_a_name_accepts_no_signed_requests(rig: StartRig) -> None:
    """If no setting names the gateway, no signature can be meant for it."""
    async with site(rig, audience=None) as gateway:
        answer = await gateway.http.get(
            "/pending", headers=sign_request(ALICE_KEY, "GET", "/pending", audience=AUDIENCE)
        )

        assert answer.status_code == 401
        assert "HOLDFAST_GATEWAY_URL" in answer.json()["detail"]


async def test_the_body_must_match_its_signed_digest(rig: StartRig) -> None:
    """The signature over the digest is checked before the body is read, and the body against the digest afterwards."""
    async with site(rig) as gateway:
        path, body = f"/threads/{uuid4().hex}/messages", b'{"message": "pay nothing"}'
        signed = sign_request(ALICE_KEY, "POST", path, body, audience=AUDIENCE)
        other = b'{"message": "pay a lot!!"}'
        swapped = await gateway.http.post(path, content=other, headers=signed)
        lying = sign_request(ALICE_KEY, "POST", path, body, audience=AUDIENCE)
        lying[DIGEST] = sign_request(ALICE_KEY, "POST", path, other, audience=AUDIENCE)[DIGEST]
        forged = await gateway.http.post(path, content=other, headers=lying)
        without = sign_request(ALICE_KEY, "POST", path, body, audience=AUDIENCE)
        del without[DIGEST]
        missing = await gateway.http.post(path, content=body, headers=without)

        assert [answer.status_code for answer in (swapped, forged, missing)] == [401, 401, 401]
        assert "not the one that was signed" in swapped.json()["detail"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://Gateway.example/", "https://gateway.example", True),
        ("HTTPS://gateway.example", "https://gateway.example", True),
        ("https://gateway.example/a/", "https://gateway.example/a", True),
        ("https://gateway.example/A", "https://gateway.example/a", False),
        ("https://gateway.example", "http://gateway.example", False),
        ("https://gateway.example:8470", "https://gateway.example", False),
    ],
)
def test_one_gateway_has_one_name(one: str, other: str, same: bool) -> None:
    """Spellings of one URL are one audience; another port, scheme or path is a different one."""
    assert (audience_of(one) == audience_of(other)) is same
