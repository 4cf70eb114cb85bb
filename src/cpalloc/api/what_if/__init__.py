"""What-ifs over HTTP: read, queued, run in processes of low priority, watched, kept for a while."""
