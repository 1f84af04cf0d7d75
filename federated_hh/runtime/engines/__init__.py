"""Engines that execute client work: in this process, and on Ray."""
