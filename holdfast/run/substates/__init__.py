"""The parts of a run's state: frozen dataclasses, one concept each, with the changes that concern nothing else.

`holdfast.run.state` puts them together; which event changes which part is `holdfast.run.evolve`.
"""
