"""Flags, exit codes and names that all programs share."""
