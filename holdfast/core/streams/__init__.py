"""Streams: the pieces of a reply on their way to readers, outside history. Pure.

`holdfast.streaming` carries them between processes; `holdfast.core.llm.deltas` has the pieces that an adapter reads.
"""
