"""Measurements of Holdfast beside a floor: the same steps as a bare Temporal workflow, in the same process.

`python -m bench` runs them, prints one table and writes `RESULTS.md`.
"""
