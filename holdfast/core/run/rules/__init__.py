"""The rules of a run: authority, verdicts, budget, constraints, loop guard, forks and how approval requests expire."""
