"""The files that an agent remembers by, in its workspace: read, changed, and kept in git."""
