"""Proof that a value comes from our own processes: seals (MACs), orders to activities, and sealed starts of workflows.

`holdfast.runtime.encryption` reads the keys; `holdfast.authority.signatures` covers what people sign.
"""
