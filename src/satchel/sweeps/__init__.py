"""Whole experiments: models by recipes by targets by devices, in one file and one command."""
