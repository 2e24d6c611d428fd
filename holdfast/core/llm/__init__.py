"""Messages to and from an LLM in a provider-neutral form, adapters for APIs, limits on content, failed LLM calls.

`holdfast.core.transcript` decides which messages make up a request; `activities.llm_calls.call_llm` makes the call.
"""
