"""The verbs, one file per group: arguments, action and output. Each verb returns the exit code.

A verb imports slow modules only when it needs them, so that help and usage errors are fast. JSON follows the contract
in the README; texts for people may change at any time.
"""
