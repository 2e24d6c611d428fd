"""The gateway: threads over HTTP, for programs that do not speak Temporal.

`app` builds it, `process` serves it; it acts on threads through `holdfast.client` and `holdfast.api`.
"""
