"""Training heads and drafts: prompts, answers the target writes itself, hidden states, losses, and the held-out truth."""
