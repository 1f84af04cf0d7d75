"""TrieHH: its guarantee, its parameters, and the words that it can find."""
