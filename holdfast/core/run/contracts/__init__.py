"""The models that cross a process boundary, by subject: workflows, activities and clients agree on them.

Every model is sealed (`holdfast.core.mac.seals`): only our own processes can make one. Signals, updates and plain
starts are claims instead: anybody who reaches Temporal can make one, and policy and signatures judge it. Which activity
answers which request, and how it is called, is in `holdfast.core.run.contracts.table`.
"""
