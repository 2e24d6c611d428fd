"""Metrics of a worker, through the one exporter that Temporal's SDK has: for Prometheus or OTLP, beside its own."""
