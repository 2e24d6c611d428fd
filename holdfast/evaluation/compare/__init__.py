"""Evaluation data: the recording that feeds a rerun, the comparison of the two, and the expectations of a dataset.

It is pure: `holdfast.evaluation` reads the files and reruns the runs.
"""
