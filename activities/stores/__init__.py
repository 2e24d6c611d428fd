"""What is kept in PostgreSQL. A run needs none of it to be correct: a database that is down delays, no more."""
