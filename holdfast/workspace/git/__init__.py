"""Git in a workspace: repositories, refs, commits and work trees, with a hardened environment."""
