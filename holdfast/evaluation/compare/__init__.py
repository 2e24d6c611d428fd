"""Evaluate on what happened: what a recorded run gives its play, how the two compare, and what a set expects.

It is pure: `holdfast.evaluation` reads the files and plays the runs.
"""
