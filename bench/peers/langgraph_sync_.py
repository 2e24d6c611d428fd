"""LangGraph with durability "sync": every checkpoint is written before the next node starts."""

from contextlib import AbstractAsyncContextManager

from bench.peers import langgraph_
from bench.peers.contender import Contender, Setup
from bench.peers.contenders import LANGGRAPH_SYNC


def open_contender(setup: Setup) -> AbstractAsyncContextManager[Contender]:
    """Open the graph."""
    return langgraph_.open_contender(setup, database=LANGGRAPH_SYNC, durability="sync")
