"""Recorded rounds against what an exact engine's would be."""
