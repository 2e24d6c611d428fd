"""The composition root: builds client, stores, LLM client and embeddings from the settings, for every process of ours.

`worker.py`, `starter.py` and `gateway.py` all wire themselves here, so a user's own stores reach each of them. What the
parts then do is up to the worker, the command line and the gateway.
"""
