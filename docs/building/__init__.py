"""Pages of the site that are made as it is built."""
