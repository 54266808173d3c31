"""Experiments on exactness and speed, each one file: numbers, a table and a figure."""
