"""The transcript: the messages that the LLM is sent, as a fold over events, and the prompt they are part of.

Events are `holdfast.log`; a message's own encoding is `holdfast.llm`.
"""
