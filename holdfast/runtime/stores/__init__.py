"""PostgreSQL: threads, artifacts, the effect ledger and semantic memory, their migrations and pruning.

The protocols are `holdfast.stores` and `holdfast.memory.semantic`: users bring stores of their own.
"""
