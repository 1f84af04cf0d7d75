"""The tables of the documents, from the results' files."""
