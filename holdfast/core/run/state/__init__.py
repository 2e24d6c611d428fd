"""The state of a run, on which every decision depends: `RunState`, its parts, and feature levels."""
