"""Messages to and from an LLM: their encoding, content limits, token estimates, and failed attempts at a call.

`holdfast.transcript` decides which messages make up a request; `activities.call_llm` makes the call.
"""
