"""Directions in the residual stream."""
