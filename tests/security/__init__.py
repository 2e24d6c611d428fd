"""Attacks, each made live against the real thing. A test here fails if one gets through."""
