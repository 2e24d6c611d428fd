"""What a decision depends on: `RunState`, its parts, and the features of a run's level."""
