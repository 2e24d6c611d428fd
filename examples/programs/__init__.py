"""Programs around agents, one file each. Each module has a catalog for a worker, and a program that uses a client."""
