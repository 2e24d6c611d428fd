"""The audit of a log: every event is recomputed with the function that produced it when it was recorded.

It is pure; `holdfast.audit.evidence` gathers the evidence.
"""
