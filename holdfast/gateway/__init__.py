"""The gateway: threads over HTTP, for programs that do not speak Temporal.

`app` builds it, `process` serves it; what it does to threads is `holdfast.client` and `holdfast.api`.
"""
