"""The closed family of mechanisms that add noise. Each one has a proof page."""
