"""The models that cross a process boundary between workflows, activities and clients, by subject.

Every model is sealed (`holdfast.core.mac.seals`): only our own processes can make one. Signals, updates and plain
starts are claims instead: anybody with access to Temporal can make one, and policy and signatures judge it.
`holdfast.core.run.contracts.table` maps each request to its activity and call options.
"""
