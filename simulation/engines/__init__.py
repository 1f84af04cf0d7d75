"""What computes a TFF computation, other than one worker on this machine."""
