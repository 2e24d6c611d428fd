"""Agents as data: their definition, their skills, and the catalog that offers them to a worker.

`holdfast.core.tools` defines tools; `holdfast.config.loading` loads a catalog by its name.
"""
