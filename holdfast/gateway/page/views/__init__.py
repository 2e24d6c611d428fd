"""Template data for the page: pure functions of our models, without requests, sessions or HTML.

Templates escape what they are given; the functions here make invisible characters visible, and say in words what a
person has to know before a decision.
"""
