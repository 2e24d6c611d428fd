"""An agent run as a pure state machine: `decide` says what follows from a state, `evolve` folds events into it.

`machine` connects both to what arrives. It does no I/O: `workflows.agent_run` carries out what it asks for.
"""
