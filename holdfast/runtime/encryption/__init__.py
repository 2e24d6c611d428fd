"""Encryption and keys: the payload codec and its server, fleet keys for seals, private keys for signatures.

`holdfast.runtime.config` parses keys in settings; `holdfast.authority` defines what is signed.
"""
