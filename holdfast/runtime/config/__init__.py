"""Configuration: settings from the environment, catalogs, policy files, webhooks, and the state folder.

It reads and checks values. What they configure is built by the package that needs it.
"""
