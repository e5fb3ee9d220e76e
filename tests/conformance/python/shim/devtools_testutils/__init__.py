"""Stands in for the package of this name, which the suite imports and which is on no registry.

It has what the live tests of messaging use, and nothing more. Entities are made by the preparers of
the suite itself, through `azure.mgmt.servicebus`, for which there is another stand-in.
"""

import contextlib
import functools
import inspect
import time
import uuid

from azure.core.credentials import AccessToken


class AzureTestError(Exception):
    pass


class ReservedResourceNameError(AzureTestError):
    pass


class AzureRecordedTestCase:
    @staticmethod
    def await_prepared_test(test):
        return test


class AzureMgmtRecordedTestCase(AzureRecordedTestCase):
    pass


class FakeResource:
    def __init__(self, name, id):
        self.name = name
        self.id = id


class AzureMgmtPreparer:
    """Wraps a test: makes a resource before it and removes it after it.

    Sharing resources between tests is something that the suite may ask for and need not get: here
    each test has its own.
    """

    is_live = True
    moniker = None
    resource = None

    def __init__(self, name_prefix="", random_name_length=None, **options):
        self.name_prefix = name_prefix
        self.random_name_enabled = options.get("random_name_enabled", False)

    def set_cache(self, *_options):
        pass

    def create_mgmt_client(self, client_class, **_options):
        return client_class()

    def __call__(self, test):
        # What wraps a test shows the test's own signature, in which pytest looks for fixtures.
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared(case, **arguments):
                with self._resource(arguments) as made:
                    await test(case, **arguments, **made)

        else:

            @functools.wraps(test)
            def prepared(case, **arguments):
                with self._resource(arguments) as made:
                    test(case, **arguments, **made)

        return prepared

    @contextlib.contextmanager
    def _resource(self, arguments):
        name = f"{self.name_prefix or 'test'}-{uuid.uuid4().hex}"
        made = self.create_resource(name, **arguments)
        try:
            yield made
        finally:
            self.remove_resource(name, **arguments)


def _without_resources(*_arguments, **_options):
    """Decorates tests that are skipped: they need none of their resources."""
    return lambda test: test


CachedResourceGroupPreparer = _without_resources
RandomNameResourceGroupPreparer = _without_resources
PowerShellPreparer = _without_resources


def recorded_by_proxy(test):
    return test


class _Credential:
    """Any token will do: the emulator accepts every one."""

    def get_token(self, *_scopes, **_options):
        return AccessToken("token", int(time.time()) + 3600)


class _AsyncCredential:
    async def get_token(self, *_scopes, **_options):
        return _Credential().get_token()

    async def close(self):
        pass


def get_credential(is_async=False, **_options):
    return _AsyncCredential() if is_async else _Credential()


def get_region_override(default):
    return default


def _record_nothing(*_arguments, **_options):
    """Nothing is recorded, so there is nothing to sanitize or to match."""


add_general_regex_sanitizer = _record_nothing
set_custom_default_matcher = _record_nothing
