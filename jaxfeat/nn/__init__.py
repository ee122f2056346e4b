"""One pass over blocks: per-position maps and one parameter-free mixer."""
