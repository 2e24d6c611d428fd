"""Budgets: limits on a run's steps, tokens, money and time, and the run's account of them.

Pure. `holdfast.core.run.rules.budget` estimates the cost of a call and computes the actual one,
`holdfast.core.run.fold.budget` reserves and settles it event by event, and `holdfast.core.run.inputs.extend` decides
who may extend a budget.
"""
