"""Grading: notebooks run from top to bottom under nbval, compared with what was handed out."""
