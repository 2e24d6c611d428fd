"""Agents as data: their definition, their skills, and the catalog that offers them to a worker.

Tools are `holdfast.tools`; loading a catalog by its name is `holdfast.runtime.config.loading`.
"""
