"""Tell what a draft would bring from acceptance and cost alone: no model is run here."""
