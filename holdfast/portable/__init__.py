"""Export a thread to a portable file, and verify such a file without a server.

`holdfast.portable.format` defines the format. The content of a file is untrusted until it is verified.
"""
