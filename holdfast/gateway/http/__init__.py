"""HTTP concerns of the gateway: limits, quotas, pages, connections, problems and slots."""
