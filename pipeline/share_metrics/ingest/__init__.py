"""`sharegroups metrics ingest`: queries that write the streams into Parquet files, and the tables of windows."""
