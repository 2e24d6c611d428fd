"""Agents with a small real LLM: `make test-llm`."""
