"""Proof that a value comes from our own processes: seals (MACs), orders to activities, and sealed starts of workflows.

Keys are read elsewhere (`holdfast.runtime.encryption`); what people sign is `holdfast.authority.signatures`.
"""
