"""An audit of a log: every event is judged anew with the function that led to it when it was recorded.

It is pure; the evidence it needs is gathered by `holdfast.audit.evidence`.
"""
