"""Next-word models trained with DP-FTRL, and their evaluation on keyboards."""

# Importing anything of federated_hh, before TensorFlow, silences TensorFlow's start.
from federated_hh.runtime.worker import startup as startup
