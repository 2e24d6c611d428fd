"""Encryption and keys: the payload codec and its server, fleet keys for seals, private keys for signatures.

`holdfast.config` parses keys in settings; `holdfast.core.authority` defines what is signed.
"""
