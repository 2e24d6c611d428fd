"""The checks of an installation and of a project, which `holdfast doctor` and the page show: servers, project,
hardening, LLM endpoints. How they are shown is up to each.
"""
