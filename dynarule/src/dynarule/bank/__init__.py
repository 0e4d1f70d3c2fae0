"""Rules as embeddings: encoders, the bank that holds them, its files, and exact or indexed search."""
