"""How a run is presented to people: status, Web UI details, notices and diffs. No decision depends on this package."""
