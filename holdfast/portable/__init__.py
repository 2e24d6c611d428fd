"""Export a thread to a portable file, and verify such a file without a server.

`holdfast.portable.format` has the format; what is in a file is untrusted until it is verified.
"""
