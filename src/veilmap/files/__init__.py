"""Files written whole or not at all, CSV cells that no spreadsheet runs, and limits on Parquet files."""
