"""An agent run as a pure state machine, without I/O. `holdfast.workflows.agent_run` carries out its commands.

`state` is everything that a decision depends on; `fold` applies events to it. `rules` are the rules that the run obeys
(`rules.verdicts` decides whether a call requires approval), `decide` chooses the next action (the step limit is there),
and `inputs` and `waits` turn inputs and wake triggers into events. `machine` connects them: inputs in, commands out;
`machine.rollover` decides when the run continues as new (continue-as-new). `contracts` defines the activities and how
each is called (the heartbeat timeout is in `contracts.table`), `views` present the run to people.
"""
