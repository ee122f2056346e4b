"""One measured claim a file; run with `python -m benchmarks.NAME`."""
