"""What knows nothing of models: processes that fork, files and caches, records, random numbers, errors' neighbours."""
