"""Present a run to people: status, Web UI details, notices and diffs. No decision depends on this package."""
