"""What drafting and verifying cost: one table, one timer and one fit, for plans, for training and
for lengths that are decided round by round."""
