"""Proof that a value comes from our own processes: seals (MACs), activity requests, and sealed starts of workflows.

`holdfast.encryption` reads the keys; `holdfast.core.authority.signatures` covers what people sign.
"""
