"""Where rows live: the contract (`base`), SQLite (`sqlite`), memory (`memory`), the schema and its migrations."""
