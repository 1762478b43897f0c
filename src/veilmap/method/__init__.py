"""Methods: everything about a release that is decided before the data is touched. All of it is public."""
