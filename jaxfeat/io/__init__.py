"""Files in and out, each checked on reading back."""
