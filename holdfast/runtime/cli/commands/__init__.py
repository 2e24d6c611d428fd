"""What can be typed: verbs with their arguments and help. Loads nothing heavy; `holdfast.runtime.cli.verbs` acts."""
