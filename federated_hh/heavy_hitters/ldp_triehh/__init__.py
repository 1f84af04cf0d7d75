"""LDP TrieHH (Sun et al. 2024): algorithm, options, results and report."""
