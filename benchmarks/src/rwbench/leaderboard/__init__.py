"""The leaderboard: submissions as data, their checks, the board's page, and sealed rounds."""
