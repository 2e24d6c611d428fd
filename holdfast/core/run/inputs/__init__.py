"""Inputs from outside: the table of interventions, decisions, and how a run reacts to each."""
