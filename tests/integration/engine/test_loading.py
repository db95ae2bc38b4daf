"""Which checkpoints load, and how a revision names what is in them."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from app.errors import FatalWork
from tests.checkpoints import build_checkpoint
from tests.observing import Recorder
from tests.requests import ask, picture
from workers.engine.int8 import Int8Linear
from workers.engine.load import load_checkpoint
from workers.engine.transformers import open_engine
from workers.engine.tuning import PackedLinear


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_the_revision_is_that_of_the_files(folder: Path, copy: Path, tmp_path: Path) -> None:
    first = load_checkpoint(str(folder)).revision
    assert load_checkpoint(str(copy)).revision == first
    change(copy / "generation_config.json", eos_token_id=7)
    assert load_checkpoint(str(copy)).revision != first
    assert load_checkpoint(str(build_checkpoint(tmp_path / "other", seed=1))).revision != first


def test_a_cpu_runs_in_fp32_unless_told_otherwise(folder: Path) -> None:
    assert load_checkpoint(str(folder)).model.dtype == torch.float32
    assert load_checkpoint(str(folder), dtype="bfloat16").model.dtype == torch.bfloat16


def test_the_number_format_is_what_the_settings_came_to(folder: Path) -> None:
    assert load_checkpoint(str(folder)).number_format == "cpu torch.float32"
    assert load_checkpoint(str(folder), device="cpu", dtype="float32").number_format == "cpu torch.float32"
    assert load_checkpoint(str(folder), dtype="bfloat16").number_format == "cpu torch.bfloat16"
    assert load_checkpoint(str(folder), dtype="int8").number_format == "cpu int8"


def test_bf16_answers_too(folder: Path) -> None:
    engine = open_engine(
        model=str(folder), normaliser="1", observer=Recorder(), dtype="bfloat16", torch_threads=1
    )
    assert engine.submit(ask(picture(1), "colour?")).result(timeout=60).usage.completion_tokens > 0
    assert engine.model == folder.name
    engine.close()


def test_a_device_that_torch_cannot_use_is_named_with_a_remedy(folder: Path) -> None:
    for device in ("cuda:7", "abacus"):
        with pytest.raises(FatalWork, match=rf"device_unavailable: .*'{device}'.*VQUEUE_DEVICE"):
            load_checkpoint(str(folder), device=device)


def test_int8_is_for_the_text_layers_and_answers_too(folder: Path) -> None:
    checkpoint = load_checkpoint(str(folder), dtype="int8")
    kinds = {name: type(module) for name, module in checkpoint.model.named_modules()}
    assert kinds["model.language_model.layers.0.mlp.up_proj"] is Int8Linear
    assert kinds["model.visual.blocks.0.mlp.linear_fc1"] is PackedLinear
    with closing(open_engine(model=str(folder), normaliser="1", observer=Recorder(), dtype="int8")) as engine:
        assert engine.submit(ask(picture(1), "colour?")).result(timeout=60).usage.completion_tokens > 0


def test_a_folder_that_is_not_there_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(FatalWork, match=r"model_not_found: .*nothing.*VQUEUE_MODEL"):
        load_checkpoint(str(tmp_path / "nothing"))


def test_another_architecture_is_named_with_a_remedy(copy: Path) -> None:
    change(copy / "config.json", model_type="qwen2_5_vl")
    with pytest.raises(FatalWork, match=r"model_unsupported: .*'qwen2_5_vl'.*Qwen3-VL"):
        load_checkpoint(str(copy))


def test_a_quantised_checkpoint_names_the_package_that_runs_it(copy: Path) -> None:
    for method in ("awq", "gptq"):
        scheme = {"quant_method": method, "bits": 4, "group_size": 32}
        change(copy / "config.json", quantization_config=scheme)
        with pytest.raises(FatalWork, match=r"model_unsupported: .* not installed: .*pip install"):
            load_checkpoint(str(copy))


def test_missing_weights_are_not_filled_with_random_ones(copy: Path) -> None:
    change(
        copy / "config.json",
        text_config=json.loads((copy / "config.json").read_text())["text_config"] | {"num_hidden_layers": 5},
    )
    with pytest.raises(FatalWork, match="model_incomplete"):
        load_checkpoint(str(copy))


def test_a_checkpoint_without_image_settings_is_refused(copy: Path) -> None:
    (copy / "preprocessor_config.json").unlink()
    with pytest.raises(FatalWork, match=r"model_unsupported: .*preprocessor_config\.json"):
        load_checkpoint(str(copy))


def test_image_settings_of_newer_saves_are_read(copy: Path) -> None:
    old = copy / "preprocessor_config.json"
    (copy / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(old.read_text())}))
    expected = load_checkpoint(str(copy)).preprocessor
    old.unlink()
    assert load_checkpoint(str(copy)).preprocessor == expected


def test_a_template_in_the_processor_s_file_is_read(copy: Path) -> None:
    template = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(FatalWork, match="chat template"):
        load_checkpoint(str(copy))
    (copy / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert load_checkpoint(str(copy)).tokenizer.chat_template == template


def test_the_pixel_budget_is_the_checkpoint_s_unless_lowered(folder: Path) -> None:
    own = load_checkpoint(str(folder)).preprocessor
    assert (own.min_pixels, own.max_pixels) == (4096, 12_288)
    assert load_checkpoint(str(folder), max_pixels=2048).preprocessor.max_pixels == 2048
    assert load_checkpoint(str(folder), max_pixels=10**9).preprocessor == own


def test_a_hub_id_loads_from_the_local_cache_without_a_network(folder: Path, tmp_path: Path) -> None:
    """In a process of its own, as the hub's library reads these variables once."""
    repository = tmp_path / "hub/models--Qwen--Qwen3-VL-tiny"
    for name, content in {"refs/main": "a" * 40, "blobs/none": ""}.items():
        (repository / name).parent.mkdir(parents=True)
        (repository / name).write_text(content)
    shutil.copytree(folder, repository / "snapshots" / ("a" * 40))
    script = (
        "from workers.engine.load import load_checkpoint as load; print(load('Qwen/Qwen3-VL-tiny').revision)"
    )
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == load_checkpoint(str(folder)).revision
