"""Keys and what they do: the payload codec and its server, fleet keys for seals, private keys for signatures.

How keys are spelt in settings is `holdfast.runtime.config`; what is signed is `holdfast.authority`.
"""
