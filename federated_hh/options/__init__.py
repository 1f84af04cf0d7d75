"""Options that know their range and meaning, and flags made of them."""
