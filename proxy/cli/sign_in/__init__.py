"""How a person at a command line signs in at a gate, and stays signed in.

    gate      what the gate says: where its people sign in
    issuer    the identity provider's endpoints, and its token endpoint's answers
    device, loopback   the two ways to sign in: a code to type anywhere, a browser on this machine
    id_tokens the identity provider's word for who signed in, checked
    kept      the file with the tokens
    web       how any of them is asked: bounded in size and time, without redirects

`proxy.cli.signed_in` puts them together. Nothing here is imported by the gate.
"""

from __future__ import annotations


class SignInFailed(Exception):  # noqa: N818 - what the person at the keyboard reads
    """It cannot be done. The message is one line that says why, with the remedy, and holds no secret."""
