"""A loop: fresh agent runs on one workspace, one task each, until everything is done. State, next step, briefs.

Each iteration is an ordinary run (`holdfast.run`); `workflows.agent_loop` carries the loop out.
"""
