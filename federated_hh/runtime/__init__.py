"""Execution of TFF computations: in a worker, in this process, or on Ray."""
