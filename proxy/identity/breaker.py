"""Whether an issuer's introspection is asked at all. Pure: whoever drives it asks the probe's question and waits.

What callers show may open nothing and close nothing. A token on which the issuer stumbles would else shut out everybody
who signs in there. So failures only raise a doubt; a probe, a question of saltgate's own, decides.
"""

from __future__ import annotations


class Breaker:
    """Closed at first. `threshold` failures in a row raise a doubt. A probe that fails opens it, one that does not
    closes it and ends the doubt. Probes of an open one come after `first_pause` seconds, then twice as long each time,
    up to `longest_pause`.
    """

    def __init__(self, *, threshold: int, first_pause: float, longest_pause: float) -> None:
        self._threshold = threshold
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._failures = 0
        self._pause: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked for a caller."""
        return self._pause is not None

    @property
    def pause(self) -> float:
        """Seconds between two probes, while it is open: how long it makes sense to wait."""
        return self._pause or self._first_pause

    def answered(self) -> None:
        """A caller's question got a proper answer."""
        self._failures = 0

    def failed(self) -> bool:
        """A caller's question got none. Returns whether there is a doubt, that is: a probe is due."""
        self._failures += 1
        return self._failures >= self._threshold

    def probed(self, *, sound: bool) -> float | None:
        """A probe ended. Returns the seconds until the next one is due; None where none is."""
        self._failures = 0
        if sound:
            self._pause = None
        elif self._pause is None:
            self._pause = self._first_pause
        else:
            self._pause = min(2 * self._pause, self._longest_pause)
        return self._pause
