"""Exports: a batch's answers as CSV, Parquet, NDJSON or JSON Lines, beside the table that was asked about."""
