"""The client for programs, `from holdfast import Client`: typed and async, with a synchronous variant.

It is a facade over `holdfast.client` and `holdfast.client.reading`, and composes them from the environment as the
command line does. Its manual is docs/how-to/use-the-client.md.
"""
