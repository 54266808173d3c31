"""The networks of draft heads: small modules over a target's hidden states, and the folders they are kept in."""
