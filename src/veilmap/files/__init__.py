"""Atomic writes, CSV cells that no spreadsheet runs as formulas, and limits on Parquet files."""
