"""One repository for each noun: a connection inside a transaction in, records and rows out. None commits."""
