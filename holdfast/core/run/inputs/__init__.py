"""Inputs from outside: the table of interventions, and the run's reaction to each."""
