"""An agent that releases a small Python package: it reads the commits, writes the changelog, tags and publishes."""
