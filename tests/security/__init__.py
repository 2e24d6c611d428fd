"""Attacks, each made live against the real components. A test here fails if an attack succeeds."""
