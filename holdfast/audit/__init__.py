"""The audit of a run: a pure judge, the evidence for it, and anchors outside the database."""
