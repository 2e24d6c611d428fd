"""Holdfast's types in a user's project, as type checkers see them; checked against the installed wheel."""
