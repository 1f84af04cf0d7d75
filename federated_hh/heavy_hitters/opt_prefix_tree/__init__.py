"""OptPrefixTree: a prefix tree whose levels adapt to what was found before."""
