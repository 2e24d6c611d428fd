"""Endpoints of LLMs: the client, embeddings, list prices, and the scripted LLM that stands in without a key.

Requests and replies are in `holdfast.core.llm`; Temporal does the retries.
"""
