"""Temporal's client for activities, under Holdfast's data converter.

The client of a program's worker encodes as the program does (`holdfast.core.temporal.composed`). What activities send
to runs is read by any worker of the fleet, so they use the same connection with Holdfast's own encoding.
"""

from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.client import Client

from holdfast.core.temporal.composed import ComposedDataConverter

_own: WeakKeyDictionary[Client, Client] = WeakKeyDictionary()


def own_client() -> Client:
    """Return the client of the worker that runs this activity, with Holdfast's data converter."""
    return with_own_converter(activity.client())


def with_own_converter(client: Client) -> Client:
    """Return a client on the same connection that encodes as Holdfast does; the client itself if it already does."""
    converter = client.data_converter
    if not isinstance(converter, ComposedDataConverter):
        return client
    if client not in _own:
        # The plugins have already been applied to this configuration.
        config = client.config(active_config=True)
        config["data_converter"], config["plugins"] = converter.own, []
        _own[client] = Client(**config)
    return _own[client]
