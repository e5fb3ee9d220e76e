"""Stands in for the management library: makes entities in the emulator, by its control interface."""

import json
import urllib.error
import urllib.request
from types import SimpleNamespace

from . import connection

# The defaults of the cloud, where the emulator of the cloud's maker has others.
_DEFAULTS = {"MaxDeliveryCount": 10, "DuplicateDetectionHistoryTimeWindow": "PT10M"}


class ServiceBusManagementClient:
    def __init__(self):
        self.namespaces = _Namespaces()
        self.queues = _Queues()
        self.topics = _Topics()
        self.subscriptions = _Subscriptions()


class _Namespaces:
    """The emulator has one namespace, whose keys have every right."""

    def begin_create_or_update(self, _group, _name, _options):
        namespace = SimpleNamespace(name=connection.HOST)
        return SimpleNamespace(result=lambda: namespace)

    def delete(self, _group, _name):
        pass

    def create_or_update_authorization_rule(self, _group, _namespace, name, _rule):
        return SimpleNamespace(name=name)

    def delete_authorization_rule(self, _group, _namespace, _name):
        pass

    def list_keys(self, _group, _namespace, _rule):
        return _keys(connection.STRING)


class _Queues:
    def create_or_update(self, _group, _namespace, name, queue):
        return _put(f"queues/{name}", {**_DEFAULTS, **queue.properties}, name)

    def delete(self, _group, _namespace, name):
        _request("DELETE", f"queues/{name}")

    def create_or_update_authorization_rule(self, _group, _namespace, _queue, name, _rule):
        return SimpleNamespace(name=name)

    def delete_authorization_rule(self, _group, _namespace, _queue, _name):
        pass

    def list_keys(self, _group, _namespace, queue, _rule):
        return _keys(f"{connection.STRING};EntityPath={queue}")


class _Topics:
    def create_or_update(self, _group, _namespace, name, properties):
        return _put(f"topics/{name}", {"Properties": properties, "Subscriptions": []}, name)

    def delete(self, _group, _namespace, name):
        _request("DELETE", f"topics/{name}")


class _Subscriptions:
    def create_or_update(self, _group, _namespace, topic, name, subscription):
        path = f"topics/{topic}/subscriptions/{name}"
        properties = {"MaxDeliveryCount": 10, **subscription.properties}
        return _put(path, {"Properties": properties}, name)

    def delete(self, _group, _namespace, topic, name):
        _request("DELETE", f"topics/{topic}/subscriptions/{name}")


def _keys(connection_string):
    return SimpleNamespace(
        primary_connection_string=connection_string,
        key_name=connection.KEY_NAME,
        primary_key=connection.KEY,
    )


def _put(path, body, name):
    _request("PUT", path, json.dumps(body).encode())
    return SimpleNamespace(name=name)


def _request(method, path, body=None):
    url = f"{connection.CONTROL_URL}/control/{path}"
    request = urllib.request.Request(url, data=body, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
