"""The pure core: what a run decides, and on what. No I/O, clock or randomness; the only package of ours that workflows
import.
"""
