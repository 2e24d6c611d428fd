"""Activities that read and write the permanent record of threads and loops."""
