"""The same agent on Holdfast and on its alternatives, side by side.

`python -m bench.peers` (`make bench-peers`) runs every contender and writes the section "Beside the peers" of
`bench/RESULTS.md`. Each contender is one small module, written as its own documentation recommends for durability,
and runs in a process of its own (`bench.peers.worker`).
"""
