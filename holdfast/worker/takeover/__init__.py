"""Takeover: ends the claims of workers on this host that have provably died, before Temporal's time-outs do.

It never affects a living process, another host or another program.
"""
