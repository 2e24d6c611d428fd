"""What the command line prints: a module for each kind of screen. Verbs gather the data."""
