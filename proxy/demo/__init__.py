"""`saltgate demo`: every part of the product embedded on loopback, and a scene that shows what it is for."""
