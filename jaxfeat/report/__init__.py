"""Figures, tables and the page of a run (matplotlib stays in here)."""
