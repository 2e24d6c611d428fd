"""The page: an inbox of decisions, and runs to look at and steer, in a browser.

It is an application of its own below `/page`, with sessions that only it reads; the API takes no cookies. `views/`
turns our models into template data by pure functions, `templates/` escape everything, and nothing is loaded from
elsewhere.
"""
