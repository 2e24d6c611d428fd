"""Reading threads: join Temporal's histories and descriptions with the permanent record, and check the result.

It changes nothing; `holdfast.client` changes runs.
"""
