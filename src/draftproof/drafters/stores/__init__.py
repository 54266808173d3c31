"""What drafters keep: counted texts, tables and files. None of these proposes anything."""
