"""Messages to and from an LLM in a form of no provider, adapters of APIs, limits of content, failed attempts at a call.

`holdfast.core.transcript` decides which messages make up a request; `activities.call_llm` makes the call.
"""
