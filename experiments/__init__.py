"""One question a file; run with `python -m experiments.NAME`."""
