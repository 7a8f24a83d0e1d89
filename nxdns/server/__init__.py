"""What clients talk to: the handler and the two listeners."""
