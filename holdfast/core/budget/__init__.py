"""Budgets: what a run may use of steps, tokens, money and time, and the account that is kept of it.

Pure; who may extend a budget is `holdfast.core.run.rules.budget`.
"""
