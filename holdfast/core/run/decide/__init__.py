"""Decide the next action of a run: `decide.next_action`, and the events with which a run starts, reacts and ends."""
