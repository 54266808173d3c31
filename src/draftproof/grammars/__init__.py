"""Grammars compiled for a vocabulary: what may come next in structured output."""
