"""What every model and every digest is made of: frozen models, canonical JSON, names, paths and lines of text.

It imports nothing of Holdfast. What a digest is taken of is decided where the value lives.
"""
