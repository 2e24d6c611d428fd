"""Published clients of other user interfaces, from npm, against a real gateway: `make test-clients`."""
