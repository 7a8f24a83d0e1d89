"""What no input may break, one target per parser; docs/how-to/fuzz.md says how to fuzz them."""

from pathlib import Path

TARGETS = ("packet", "hop", "framing", "endpoint", "config_lines", "http_head")
"""Modules beside this one; the function ``target`` of each takes bytes, and raises for a defect."""

CORPUS = Path(__file__).parent / "corpus"
"""A folder for each target."""
