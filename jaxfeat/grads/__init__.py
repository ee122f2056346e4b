"""The gradient taken apart, and what each part does to a feature."""
