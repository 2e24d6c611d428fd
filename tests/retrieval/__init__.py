"""A labelled set for semantic memory: `items.jsonl` and `queries.jsonl`, written by `make.py`, and its scoring."""
