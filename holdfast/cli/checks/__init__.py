"""Checks of the command line: how `doctor` reports, what limits the throughput, and who offers an agent."""
