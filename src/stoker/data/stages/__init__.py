"""The steps of `prepare`, each of which publishes its result whole and is not done twice."""
