"""The transcript, the messages to the LLM as a fold over events, and the prompt that contains it.

`holdfast.log` defines the events; `holdfast.llm` encodes single messages.
"""
