"""How connections come to a worker from the one socket that all workers share.

loads       how many connections each worker has, in memory that all of them see, and whose turn it is
acceptor    takes connections in its turn, through TLS where there is any
"""
