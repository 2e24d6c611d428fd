"""The fold of events to state: `evolve`, and a file for each part of the state."""
