"""How the broker is named and spoken to, as far as it can be judged without one."""

import ast
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.config import Settings
from app.queue import is_amqp, make_celery, queue_name
from app.results import OUR_FAULTS

ROOT = Path(__file__).resolve().parents[2]


def celery_for(broker_url: str) -> Any:  # Celery's configuration has no type of its own
    return make_celery(Settings(broker_url=SecretStr(broker_url))).conf


@pytest.mark.parametrize("model", ["Qwen3-VL-8B-Instruct", "a b", "org/model:tag", "模型"])
def test_a_queue_is_named_in_characters_that_every_broker_takes(model: str) -> None:
    name = queue_name(model)
    assert name.startswith("vqueue.run.")
    assert name.isascii()
    assert " " not in name
    assert "/" not in name


def test_tls_to_rabbitmq_checks_certificate_and_host_name() -> None:
    used = celery_for("amqps://user:word@broker.example:5671//")["broker_use_ssl"]
    assert used == {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "broker.example"}


def test_tls_to_redis_checks_certificate_and_host_name() -> None:
    used = celery_for("rediss://:word@broker.example:6380/0")["broker_use_ssl"]
    assert used == {"ssl_cert_reqs": "required", "ssl_check_hostname": True}


@pytest.mark.parametrize("url", ["amqp://broker//", "redis://broker/0"])
def test_a_url_without_tls_asks_for_none(url: str) -> None:
    assert celery_for(url)["broker_use_ssl"] is None


def test_only_json_is_taken_from_the_broker() -> None:
    conf = celery_for("redis://broker/0")
    assert (conf["accept_content"], conf["task_serializer"]) == (["json"], "json")


def test_both_kinds_of_broker_are_told_apart() -> None:
    assert [is_amqp(url) for url in ("amqp://h", "amqps://h", "pyamqp://h", "redis://h")] == [
        True,
        True,
        True,
        False,
    ]


def test_every_code_of_a_fault_of_ours_is_told_as_status_500() -> None:
    assert set(_codes_raised_as("FatalWork")) - AT_START <= OUR_FAULTS


# Raised before there is any job.
AT_START = {"device_unavailable", "engine_missing", "engine_settings", "model_incomplete", "model_not_found"}


def _codes_raised_as(error: str) -> Iterator[str]:
    for path in ROOT.glob("workers/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == error:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    yield str(code.value)
