"""Central training: pretraining on public text, and as a baseline."""
