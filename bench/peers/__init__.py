"""Compares the same agent on Holdfast and on its alternatives.

`python -m bench.peers` (`make bench-peers`) runs every contender and writes the section "Compared with alternatives"
of `bench/RESULTS.md`. Each contender is one small module, written as its own documentation recommends for durability,
and runs in a separate process (`bench.peers.worker`).
"""
