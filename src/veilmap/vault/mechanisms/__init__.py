"""The closed family of mechanisms that add noise. Each has a proof page."""
