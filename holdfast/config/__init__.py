"""Configuration: settings from the environment, catalogs, policy files, webhooks, and the state folder.

It reads and checks values. The package that needs a value builds what it configures.
"""
