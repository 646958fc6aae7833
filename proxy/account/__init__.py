"""saltgate's pages for people: they sign in with a browser, see what they may use, and end their sessions.

    /auth/login → the issuer → /auth/callback → `session` → /account → /auth/logout

`attempt` is one sign-in on its way, `session` what it leads to, `store` where sessions are. `visitors` knows by his
cookie who stands at the desk. `sign_in`, `sign_out`, `back_channel` and `overview` are the clerks, `pages` what they
show, `clerks` those who are there.

No cookie counts anywhere but here, and here no other credential does.
"""
