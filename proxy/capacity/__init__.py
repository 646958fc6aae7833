"""How many requests an engine is sent at once, and who is next where more want to go: `rota.py` is the fair order,
`places.py` counts and decides, both pure; `waiting.py` is one request that waits; `shares.py` is what one worker has of
the deployment's limits.
"""
