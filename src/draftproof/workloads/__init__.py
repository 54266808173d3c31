"""What tools work on: prompts by workload, conversations, and the answers that a target gives."""
