"""Memory: semantic memory as data, and the text of memory files (TASKS.md, progress.txt, ERRORS.md, features.json).

These are pure functions from text to text: `holdfast.workspace.memory` reads and writes the files. An edit changes one
item and keeps every other byte.
"""
