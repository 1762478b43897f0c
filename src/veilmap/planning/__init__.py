"""Plans: predict the accuracy of a release without the data, before any budget is spent."""
