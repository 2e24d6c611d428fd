"""What a run does next: `decide.next_action` first, then how it starts, reacts, compacts its context and ends."""
