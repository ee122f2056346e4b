"""Training: the step, its variants, the loop, checkpoints, replay."""
