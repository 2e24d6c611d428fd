"""What an LLM is sent and what it replies: messages, their content and its limits, tokens, failed attempts.

Which messages make up a request is `holdfast.transcript`; the call itself is `activities.call_llm`.
"""
