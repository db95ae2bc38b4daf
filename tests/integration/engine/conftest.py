"""Fixtures: a small random checkpoint, the library's answers from it, engines that close themselves."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from bench.oracle import Oracle
from tests.checkpoints import build_checkpoint
from tests.observing import Recorder
from workers.engine.feature_checks import FeatureChecks
from workers.engine.feature_codec import Format
from workers.engine.features import FeatureCache, FeatureStore, MemoryTier
from workers.engine.load import Checkpoint, load_checkpoint
from workers.engine.transformers import TransformersEngine
from workers.engine.watchdog import end_process

MIB = 2**20
OpenEngine = Callable[..., TransformersEngine]


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    """One thread, as the machine is shared, and no progress bars."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def checkpoint(folder: Path) -> Checkpoint:
    """Loaded afresh, so that a test may break its model."""
    return load_checkpoint(str(folder))


@pytest.fixture
def open_engine(checkpoint: Checkpoint, recorder: Recorder) -> Iterator[OpenEngine]:
    """Engines on the checkpoint that keep neither features nor prefixes for later, unless told to."""
    with ExitStack() as stack:

        def open_one(
            *,
            checkpoint: Checkpoint = checkpoint,
            cache_bytes: int = 0,
            store: FeatureStore | None = None,
            step_rows: int = 4,
            max_wait_s: float = 0.01,
            normaliser: str = "1",
            prepare_threads: int = 2,
            form: Format = Format.NATIVE,
            check_share: float = 0.0,
            prefix_cache_bytes: int = 0,
            kv_bytes: int = 64 * MIB,
            step_tokens: int = 4096,
            stall_s: float = 0.0,
            on_dead: Callable[[], None] = end_process,
        ) -> TransformersEngine:
            cache = FeatureCache(
                memory=MemoryTier(budget=cache_bytes),
                store=store,
                observer=recorder,
                form=form,
                checks=FeatureChecks(share=check_share, observer=recorder),
            )
            engine = TransformersEngine(
                name="tiny",
                checkpoint=checkpoint,
                cache=cache,
                observer=recorder,
                normaliser=normaliser,
                step_rows=step_rows,
                max_wait_s=max_wait_s,
                prepare_threads=prepare_threads,
                prefix_cache_bytes=prefix_cache_bytes,
                kv_bytes=kv_bytes,
                step_tokens=step_tokens,
                stall_s=stall_s,
                on_dead=on_dead,
            )
            return stack.enter_context(closing(engine))

        yield open_one
