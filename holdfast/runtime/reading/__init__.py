"""Reading threads: join Temporal's histories and descriptions with the permanent record, and check the result.

It changes nothing; `holdfast.runtime.client` changes runs.
"""
