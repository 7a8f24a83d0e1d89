"""What outlives the process: the store of episodes."""
