"""Reading threads: join Temporal's histories and descriptions with the permanent record, and check the result.

This package is read-only; `holdfast.client` changes runs.
"""
