"""PostgreSQL: threads, artifacts, the effect ledger and semantic memory, their migrations and pruning.

The protocols are in `holdfast.core.stores` and `holdfast.core.memory.semantic`; users may supply their own stores.
"""
