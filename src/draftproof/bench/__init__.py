"""Measure: arms of several engines on the same prompts, interleaved, with everything a figure depends on."""
