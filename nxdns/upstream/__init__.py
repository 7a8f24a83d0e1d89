"""Upstreams: what they are, what can go wrong with them, how they are asked, and in what order."""
