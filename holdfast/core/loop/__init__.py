"""Loops: fresh agent runs on one workspace, one task each, until everything is done. State, decisions and briefs.

Each iteration is an ordinary run (`holdfast.core.run`); `workflows.agent_loop` executes the loop.
"""
