"""The gateway: threads over HTTP, for programs that do not speak Temporal. `gateway.py` serves `app.build_app`."""
