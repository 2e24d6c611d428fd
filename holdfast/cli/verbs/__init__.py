"""The verbs, a file for each group: what can be typed, what it does, and what it prints. Each returns the exit code.

A verb imports what is slow when it needs it, so help and refusals are fast. JSON follows the contract in the README;
texts for people may change at any time.
"""
