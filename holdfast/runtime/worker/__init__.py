"""What a worker process is made of, beyond its activities: redaction of errors, and a shutdown that cannot hang.

`worker.py` puts it together.
"""
