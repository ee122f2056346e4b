"""Command line, result folders and what is installed."""
