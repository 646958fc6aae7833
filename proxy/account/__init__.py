"""What people see and change of their own: their personal access tokens.

`visitors` says who visits, `tokens` does what he asks for, `token_pages` speaks JSON with him.
"""
