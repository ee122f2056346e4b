"""Tasks and their samplers as pure functions of a key."""
