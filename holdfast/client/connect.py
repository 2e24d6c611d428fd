"""Connect to Temporal: the standard `TEMPORAL_*` environment first, then the embedded stack on this machine.

The embedded stack is identified by its state folder (`own_stack`), not by its port.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from holdfast.client.exiting import finish_at_exit
from holdfast.client.own_stack import OwnStack
from holdfast.client.unreachable import unreachable
from holdfast.config.stack_file import DEFAULT_ADDRESS, Stack, read_stack
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.temporal.converter import LeanPayloadConverter
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.encryption.codec import EncryptionCodec, build_converter
from holdfast.encryption.fleet_keys import stack_seals
from holdfast.errors import ServerUnreachable, StackError

CONNECT_SECONDS = 10.0
"""Seconds that the server may take to answer the first request."""


def connect_config(environ: Mapping[str, str], *, home: Path) -> dict[str, Any]:
    """Return Temporal's address and options, as keyword arguments of `Client.connect`.

    Args:
        environ: Usually `os.environ`; `TEMPORAL_*` and Temporal's configuration file take precedence.
        home: The state folder. Its embedded stack is used if the environment names no address.

    Raises:
        ServerUnreachable: The environment or the configuration file cannot be read.
    """
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config(override_env_vars=dict(environ)))
    except (RuntimeError, ValueError, OSError) as error:
        raise ServerUnreachable(f"Temporal's configuration cannot be used: {error}") from None
    if config.get("target_host"):
        return config
    # Options for another server, such as an API key, are not sent to a port of this machine.
    given = {"namespace": config["namespace"]} if config.get("namespace") else {}
    stack = read_stack(home)
    address = stack.temporal_address if stack else DEFAULT_ADDRESS
    return {**(given if stack else config), "target_host": address, "plugins": [OwnStack(home)]}


async def connect(
    config: Mapping[str, Any], *, codec: EncryptionCodec | None = None, seals: FleetKeys | None = None
) -> Client:
    """Connect a client that encodes Holdfast's models.

    Args:
        config: Keyword arguments of `Client.connect`, as `connect_config` returns them.
        codec: `EncryptionCodec.of(settings.encryption_keys)`; None to encrypt nothing.
        seals: `fleet_seals(settings, config)`; None for a client that can only read and make unsealed starts.

    Raises:
        ServerUnreachable: No server answers, or it rejects the connection.
    """
    finish_at_exit()
    address = config["target_host"]
    converter = build_converter(codec or EncryptionCodec(), seals or FleetKeys())
    try:
        # An address that drops packets would block for minutes, and a server that never answers, forever.
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Client.connect(**config, data_converter=converter)
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise unreachable(address, _reason(error)) from None


async def connect_stack(stack: Stack, *, codec: EncryptionCodec | None = None) -> Client:
    """Connect to the embedded stack, with its fleet key.

    Raises:
        ServerUnreachable: The stack is not running.
        SettingsError: Its fleet key cannot be read.
    """
    return await connect(stack_config(stack), codec=codec, seals=stack_seals(stack))


def adapt(client: Client, *, codec: EncryptionCodec, seals: FleetKeys) -> Client:
    """Return a client on the same connection that encodes Holdfast's models; the client itself if it already does.

    Interceptors are kept. The data converter is replaced, because workers read only Holdfast's encoding and encryption.
    """
    finish_at_exit()
    if issubclass(client.data_converter.payload_converter_class, LeanPayloadConverter):
        return client
    # The plugins have already been applied to this configuration.
    config = client.config(active_config=True)
    config["data_converter"], config["plugins"] = build_converter(codec, seals), []
    return Client(**config)


def address_of(client: Client) -> dict[str, Any]:
    """Return a client's address and namespace, as keyword arguments of `Client.connect`."""
    return {"target_host": client.service_client.config.target_host, "namespace": client.namespace}


def stack_config(stack: Stack) -> dict[str, Any]:
    """Return the embedded stack's server as keyword arguments of `Client.connect`, for that server alone."""
    plugins = [OwnStack(Path(stack.fleet_keys).parent)] if stack.fleet_keys else []
    return {"target_host": stack.temporal_address, "namespace": stack.namespace, "plugins": plugins}


def own_stack(config: Mapping[str, Any]) -> OwnStack | None:
    """Return the guard that keeps a client of the embedded stack from other servers; None if another server is
    configured.
    """
    return next((each for each in config.get("plugins", ()) if isinstance(each, OwnStack)), None)


async def ensure_search_attributes(client: Client) -> None:
    """Register those of `SEARCH_ATTRIBUTES` that the client's namespace lacks.

    Raises:
        StackError: The server does not let this client register them; the message has the command for an operator.
    """
    missing = dict(SEARCH_ATTRIBUTES)
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
        missing = {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name not in known.custom_attributes}
        if missing:
            types = {name: _TYPES[kind] for name, kind in missing.items()}
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=client.namespace, search_attributes=types)
            )
    except RPCError as error:
        flags = " ".join(f"--name {name} --type {kind}" for name, kind in missing.items())
        raise StackError(
            f"search attributes cannot be registered in namespace {client.namespace!r} ({error.message}). "
            f"Ask its operator for: temporal operator search-attribute create {flags}"
        ) from None


_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}


def _reason(error: Exception) -> str:
    """Return the innermost message of a connection error, which is one long chain of causes."""
    if isinstance(error, TimeoutError):
        return f"nothing within {CONNECT_SECONDS:g} s"
    words = str(error).replace("\n", " ").rstrip(". ")
    innermost = re.findall(r'(?:message|error): "([^"]+)"', words)
    return str(innermost[-1]) if innermost else words[-200:]
