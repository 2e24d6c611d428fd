"""Budgets: limits on a run's steps, tokens, money and time, and the run's account of them.

Pure; `holdfast.core.run.rules.budget` decides who may extend a budget.
"""
