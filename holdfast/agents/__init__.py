"""Agents as data: their definition, their skills, and the catalog that offers them to a worker.

`holdfast.tools` defines tools; `holdfast.runtime.config.loading` loads a catalog by its name.
"""
