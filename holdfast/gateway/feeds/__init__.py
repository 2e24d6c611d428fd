"""Feeds: a thread's frames in the protocols of other user interfaces.

`conversation` folds frames into steps, `ag_ui` and `ui_messages` write steps as the events of a protocol, `feed` gives
these their ids, and `claims` reads the requests of such clients. All of this is pure; `looking_back` reads the log.
"""
