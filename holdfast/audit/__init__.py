"""The audit of a run: a pure judge, the evidence that it judges, and anchors outside the database."""
