"""What an engine under audit looks like, one file an engine."""
