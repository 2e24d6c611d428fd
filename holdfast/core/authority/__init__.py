"""Authority: policies and their conditions, approval requests, signed statements of people, and votes.

These are models and pure functions. `holdfast.core.run` opens requests, counts votes and acts on decisions.
"""
