"""The gateway's routes, a module for each part of the API."""
