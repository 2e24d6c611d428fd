"""Shared by the demos: worker processes, commands, folders, git, progress output and the table of facts."""
