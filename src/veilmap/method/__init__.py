"""Methods: all choices of a release that are made before the data is read. They are public."""
