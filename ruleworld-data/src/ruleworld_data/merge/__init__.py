"""Parallel questions reworded by a language model: asked once, cached, and checked against the templates' wording."""
