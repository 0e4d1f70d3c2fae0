"""What is asked: reasoning skeletons, the units drawn from them, and the words that a question is put in."""
