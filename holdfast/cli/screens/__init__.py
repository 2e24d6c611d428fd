"""Output of the command line: a module for each kind of screen. Verbs gather the data."""
