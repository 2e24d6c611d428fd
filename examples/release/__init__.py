"""An agent that releases a small Python package: reads its commits, writes its changelog, tags and publishes."""
