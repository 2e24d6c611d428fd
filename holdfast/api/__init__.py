"""The client for programs, `from holdfast import Client`: typed, async, with a sync face.

It is a face over `holdfast.client` and `holdfast.client.reading`, and composes them from the environment as
the command line does. docs/how-to/use-the-client.md is its manual.
"""
