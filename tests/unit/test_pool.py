"""The pool opens every model of a worker once, or says which one cannot be had."""

import pytest

from app.config import Settings, read_option
from app.errors import FatalWork, TransientWork
from app.model_list import read_models
from workers.engine.base import Engine
from workers.engine.fake import FakeEngine
from workers.pool import open_pool


class Closing(FakeEngine):
    closed = False

    def close(self) -> None:
        super().close()
        self.closed = True


class Garage:
    """Opens engines, remembers them, and refuses the models that it is told to."""

    def __init__(self, *refused: str) -> None:
        self.opened: list[Closing] = []
        self._refused = refused

    def __call__(self, settings: Settings) -> Engine:
        if settings.model in self._refused:
            raise FatalWork("model_incomplete", "weights are missing")
        self.opened.append(Closing(model=settings.served_model, revision=settings.model))
        return self.opened[-1]


@pytest.fixture
def settings() -> Settings:
    models = read_models("small=/m/4b max_pixels=2048, large=/m/8b", read_option)
    return Settings().model_copy(update={"models": models})


def test_each_model_is_opened_once_with_its_own_settings(settings: Settings) -> None:
    pool = open_pool(settings, Garage())
    small = pool.resident("small")
    assert (small.engine.revision, small.settings.max_pixels) == ("/m/4b", 2048)
    assert pool.resident("large").engine is pool.resident("large").engine
    assert list(pool.residents) == ["small", "large"]


def test_a_worker_opens_only_the_models_that_it_is_for(settings: Settings) -> None:
    garage = Garage()
    pool = open_pool(settings.model_copy(update={"worker_models": ("large",)}), garage)
    assert [engine.model for engine in garage.opened] == ["large"]
    with pytest.raises(TransientWork, match="'small'"):
        pool.resident("small")


def test_one_model_that_cannot_be_loaded_is_named_and_leaves_none_open(settings: Settings) -> None:
    garage = Garage("/m/8b")
    with pytest.raises(FatalWork, match="'large' cannot be loaded: weights are missing") as refused:
        open_pool(settings, garage)
    assert refused.value.code == "model_incomplete"
    assert [(engine.model, engine.closed) for engine in garage.opened] == [("small", True)]


def test_closing_the_pool_closes_every_engine(settings: Settings) -> None:
    garage = Garage()
    open_pool(settings, garage).close()
    assert [engine.closed for engine in garage.opened] == [True, True]
