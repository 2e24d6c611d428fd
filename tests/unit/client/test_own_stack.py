"""`holdfast.client.own_stack`: which failed requests to the embedded stack are repeated."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from holdfast.client import own_stack
from holdfast.client.own_stack import OwnStack


class _Running(OwnStack):
    """A stack that always runs."""

    def runs_at(self, address: str) -> bool:
        return True


class _Failing(ServiceClient):
    """Fails with each status in turn, then answers."""

    def __init__(self, *statuses: RPCStatusCode) -> None:
        super().__init__(ConnectConfig(target_host="127.0.0.1:7233"))
        self.left = list(statuses)

    @property
    def worker_service_client(self) -> Any:
        return None

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Change nothing."""

    def update_api_key(self, api_key: str | None) -> None:
        """Change nothing."""

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: Any,
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        if self.left:
            raise RPCError("operation was canceled", self.left.pop(0), b"")
        return "answered"


async def _call(connected: _Failing, *, retry: bool) -> object:
    checked = own_stack._Checked(connected, _Running(Path("/nowhere")))
    return await checked._rpc_call("list", None, None, service="workflow", retry=retry, metadata={}, timeout=None)


@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.CANCELLED, RPCStatusCode.INTERNAL])
async def test_a_request_is_repeated_if_its_connection_breaks(
    status: RPCStatusCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that fails with its connection is sent again, and its caller gets the answer."""
    monkeypatch.setattr(own_stack, "PAUSES", (0.0, 0.0))
    assert await _call(_Failing(status, status), retry=True) == "answered"


@pytest.mark.parametrize("status", [RPCStatusCode.NOT_FOUND, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_a_request_is_not_repeated_if_the_server_answered(
    status: RPCStatusCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that the server answered, or whose time is up, fails at once."""
    monkeypatch.setattr(own_stack, "PAUSES", (0.0, 0.0))
    connected = _Failing(status, status)
    with pytest.raises(RPCError):
        await _call(connected, retry=True)
    assert connected.left == [status]


async def test_a_request_that_may_not_be_repeated_fails_with_its_connection() -> None:
    """Without `retry`, a failure reaches the caller."""
    with pytest.raises(RPCError):
        await _call(_Failing(RPCStatusCode.CANCELLED), retry=False)
