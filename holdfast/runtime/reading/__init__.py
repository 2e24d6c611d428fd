"""Reading threads: Temporal's histories and descriptions, and the permanent record, put together and checked.

It changes nothing. What clients do to runs is `holdfast.runtime.client`.
"""
