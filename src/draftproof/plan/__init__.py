"""Will a draft pay? Asked of two models and a text before anything is built on them."""
