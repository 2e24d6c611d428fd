"""An agent run as a pure state machine, without I/O. `workflows.agent_run` carries out what it asks for.

`decide` says what follows from a state (the step limit is there), `evolve` applies events to it, and `machine` connects
both to what arrives. `activities` says how each activity is called (the heartbeat timeout is there), `rollover` when
the run continues as new (continue-as-new).
"""
