"""The transcript, the messages to the LLM as a fold over events, and the prompt that contains it.

`holdfast.core.log` defines the events; `holdfast.core.llm` encodes single messages.
"""
