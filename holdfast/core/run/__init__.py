"""An agent run as a pure state machine, without I/O. `workflows.agent_run` carries out what it asks for.

`decide` says what follows from a state (the step limit is there), `judge` whether a call requires approval, `evolve`
applies events to the state, whose parts are `substates`, and `machine` connects all of it to what arrives. `activities`
says how each activity is called (the heartbeat timeout is there), `rollover` when the run continues as new
(continue-as-new).
"""
