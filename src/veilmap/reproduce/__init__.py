"""The experimental study of the paper (section 8), on this implementation and on the rivals."""
