"""Texts of an engine that shows nothing but its tokens, against the law of a local copy of its target, or of its plain
texts."""
