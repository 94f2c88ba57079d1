"""How interceptions are installed. Knows no framework."""
