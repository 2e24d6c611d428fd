"""The gateway: threads over HTTP, for programs that do not speak Temporal.

`app` puts it together, `gateway.py` serves it; what it does to threads is `holdfast.runtime.client`.
"""
