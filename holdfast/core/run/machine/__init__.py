"""The run without I/O: inputs in, commands out; its log, calls, sub-agents and continue-as-new."""
