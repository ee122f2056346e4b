"""Model families as decoders."""
