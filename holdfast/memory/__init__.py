"""The files that an agent remembers by, as text: what people and agents write in them, read and changed in place.

`tasks` is TASKS.md, `progress` progress.txt, `notes` ERRORS.md and its like, `features` features.json. Text in, text
out: `holdfast.runtime.memory` reads and writes the files themselves. Outside the item that is changed, every byte
stays as it was.
"""
