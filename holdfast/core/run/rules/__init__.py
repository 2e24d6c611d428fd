"""The rules of a run: authority, verdicts, budget, constraints, loop guard, forks, compaction and approval requests."""
