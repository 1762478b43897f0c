"""Predict what a release will be worth, before a budget is spent and without the data."""
