"""Images that a request names by their address, fetched by saltgate itself: the engine never sees an address.

`lookup` says which addresses a host has and lets through only those that it may have, `fetcher` asks for the images.
Nothing outlives the request: no image, no connection and no looked-up address is kept for another, because what is kept
is faster the second time, and so would tell one unit what another has asked for.
"""
