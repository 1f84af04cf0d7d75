"""Private heavy hitters: words, tries, selection on the client, evaluation."""
