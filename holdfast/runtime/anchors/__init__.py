"""Where node seals go, outside the database: folders and webhooks. Nothing here stops or fails a run.

`holdfast.log.node_seals` says what a seal is; `holdfast.audit.anchors` compares seals with a log.
"""
