"""The kill matrix: run an agent on a real worker and real servers, and kill the worker at every boundary.

`matrix` runs it; `audit` compares the run's log with the effects in the outside world. It needs only your catalog and
a scripted LLM.
"""
