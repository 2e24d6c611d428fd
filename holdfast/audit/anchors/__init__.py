"""Sends node seals outside the database, to folders and webhooks. An error here never stops or fails a run.

`holdfast.core.log.node_seals` defines a seal; `holdfast.audit.judge.anchors` compares seals with a log.
"""
