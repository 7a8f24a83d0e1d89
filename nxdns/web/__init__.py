"""The HTTP surface: metrics, an API, and a page. Knows the rest only through snapshots."""
