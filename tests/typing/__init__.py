"""What type checkers see of Holdfast in a user's project; checked against the installed wheel."""
