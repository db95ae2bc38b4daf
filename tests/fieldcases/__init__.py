"""Runs a folder of field cases against the product: `scripts/fieldcases FOLDER [--kind K]`."""
