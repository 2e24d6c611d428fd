"""What several tests use: rigs, servers, stand-in services, agents that programs load, and made-up runs."""
