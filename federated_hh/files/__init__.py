"""Files that are whole or not there, tables, and the code that a result depends on."""
