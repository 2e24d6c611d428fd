"""The kill matrix: an agent on a real worker and real servers, killed at every boundary.

`matrix` runs it, `audit` holds its log against the world. A catalog of your own and a scripted LLM are all it needs.
"""
