"""How results are shown: tables for people, one JSON document for machines, figures for both."""
