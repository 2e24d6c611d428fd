"""What touches the machine: configuration, stores, servers, files, and the programs' surfaces.

Not pure, so workflows never import it. Each package here owns one part of the outside world.
"""
