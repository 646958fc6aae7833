"""Proof: what saltgate knows of its engines because it tried, and what it therefore lets through."""
