"""Ports of the embedded servers that are in use when these start."""

import socket
import threading

import pytest

from holdfast.devstack import ports
from holdfast.devstack.ports import HOST, Ports, any_free


def test_a_port_that_is_being_released_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the port of a server that was just killed: the next one waits until the kernel releases it."""
    monkeypatch.setattr(ports, "RELEASE_SECONDS", 60.0)
    usual, lines = Ports(any_free(), any_free(), any_free()), list[str]()
    dying = socket.socket()
    dying.bind((HOST, usual.grpc))
    release = threading.Timer(0.8, dying.close)
    release.start()
    assert usual.or_free(report=lines.append) == usual
    release.join()
    assert lines == []


def test_a_port_on_which_another_program_listens_is_replaced() -> None:
    """It will not be released: another one is taken, and a line says so."""
    usual, lines = Ports(any_free(), any_free(), any_free()), list[str]()
    with socket.create_server((HOST, usual.http)):
        found = usual.or_free(report=lines.append)
    assert (found.grpc, found.http != usual.http) == (usual.grpc, True)
    assert lines == [f"port {usual.http} is in use; Temporal's HTTP API uses {found.http}"]
