"""Bank support: an agent whose data, instructions and tools depend on the customer (`README.md`)."""
