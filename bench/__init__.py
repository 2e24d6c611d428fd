"""Benchmarks of Holdfast against a floor: a bare Temporal workflow that makes the same steps in the same process.

`python -m bench` runs the comparison, prints one table and writes `RESULTS.md`.
"""
