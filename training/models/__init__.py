"""Next-word models: the CIFG-LSTM, custom models, and their metrics."""
