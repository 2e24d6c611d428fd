"""What the demos stand on: processes, doors, folders, git, and what they print and count."""
