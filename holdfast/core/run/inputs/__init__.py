"""Inputs from outside: the table of interventions, and the run's reaction to each; and what is due by time, such
as the expiry of an approval (`decisions.on_due`).
"""
