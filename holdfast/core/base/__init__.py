"""Building blocks for all packages: frozen models, canonical JSON, digests, names, paths and lines of text.

This package imports nothing else of Holdfast except its errors. Each package decides what its own digests cover.
"""
