"""What a person may see and change of his own: whom the gate takes him for, his sessions, his personal access tokens.

Programs show a credential: `account`, `token_pages`, `tokens`, `persons`, `logins`, `pace`. People have a browser:

    /auth/login → the issuer → /auth/callback → `session` → /account → /auth/logout

`attempt` is one sign-in on its way, `session` what it leads to, `store` where sessions are. `visitors` knows by his
cookie who stands at the desk. `sign_in`, `sign_out`, `back_channel` and `overview` are the clerks, `pages` what they
show, `clerks` those who are there. No cookie counts anywhere but here, and to these pages no other credential does.
"""
