"""The pytest plugin that runs the suite against the emulator: which tests, and in which way."""

import json
import os
from pathlib import Path

import pytest

import azure.servicebus
import azure.servicebus.aio
from azure.mgmt.servicebus import connection

HERE = Path(__file__).parent.parent

LIVE = "@pytest.mark.live_test_only"


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="only the tests that quick.txt lists")


def pytest_configure(config):
    # The suite makes the host of a namespace from its name and this suffix.
    os.environ["SERVICEBUS_ENDPOINT_SUFFIX"] = f":{connection.PORT}"
    # With it, the suite does not ask for a resource group.
    os.environ["SERVICEBUS_RESOURCE_GROUP"] = "emulator"
    for client in (azure.servicebus.ServiceBusClient, azure.servicebus.aio.ServiceBusClient):
        _connect_without_tls(client)


def _connect_without_tls(client):
    """The emulator has no TLS, and the suite takes it for granted."""
    connect = client.__init__

    def plain(self, *arguments, **options):
        connect(self, *arguments, **{**options, "use_tls": False})

    client.__init__ = plain


@pytest.fixture(scope="session")
def test_proxy():
    """The suite's own fixture of this name records traffic."""


def pytest_ignore_collect(collection_path):
    """Files without a live test may need what the live tests do not."""
    if collection_path.name.startswith("test_") and collection_path.is_file():
        return LIVE not in collection_path.read_text() or None
    return None


def pytest_collection_modifyitems(config, items):
    skips = _skips()
    quick = _quick() if config.getoption("--quick") else None
    chosen, others = [], []
    for item in items:
        name = _name(item)
        is_live = item.get_closest_marker("live_test_only") is not None
        if is_live and (quick is None or name in quick):
            chosen.append(item)
        else:
            others.append(item)
        if name in skips:
            item.add_marker(pytest.mark.skip(reason=skips[name]))
    config.hook.pytest_deselected(items=others)
    # The test that takes longest is in the last file.
    items[:] = reversed(chosen)


def _name(item):
    """`test_queues.py::test_name`, whatever the parameters."""
    return f"{item.path.name}::{item.originalname}"


def _skips():
    groups = json.loads((HERE / "skips.json").read_text())
    all_groups = groups["skips"] + groups["fails"]
    return {test: group["reason"] for group in all_groups for test in group["tests"]}


def _quick():
    lines = (HERE / "quick.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}
