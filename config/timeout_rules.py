"""What must hold of the times that are a model's own. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from config.faults import Fault
from config.settings import Engine


def faults_of_model_timeouts(key: str, engine: Engine) -> Iterator[Fault]:
    """`key` is the engine's. Each model has one place, and is one of the engine's where those are listed."""
    places: dict[str, str] = {}
    for number, timeouts in enumerate(engine.model_timeouts):
        for position, model in enumerate(timeouts.models):
            place = f"{key}.model_timeouts.{number}.models.{position}"
            if model in places:
                yield Fault(place, f"is also at {places[model]}; give each model its times in one place")
            elif engine.models is not None and model not in engine.models:
                yield Fault(place, "is none of this engine's `models`; write it as it stands there")
            places.setdefault(model, place)
