"""Benchmarks of Holdfast against a floor: a bare Temporal workflow that makes the same steps in the same process.

`python -m bench` runs them, prints one table and writes `RESULTS.md`.
"""
