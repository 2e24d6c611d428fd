"""Attacks, each made against the real thing: what nobody authorised does not run."""
