"""Rules as text, and back: first-order logic and English, rendered column-wise and parsed without the renderer."""
