"""What exists: the words of a world and the rules that hold in it, as index arrays drawn by keyed streams."""
