"""The command line, behind the verbs of `starter.py`: carrying them out, screens for people, the live view, doctor."""
