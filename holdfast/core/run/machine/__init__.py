"""The run without I/O: inputs go in, commands come out; log, calls, sub-agents and continue-as-new."""
