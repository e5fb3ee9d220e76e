"""What the suite asks of an entity, as the emulator's control interface has it."""

import enum


class AccessRights(enum.Enum):
    manage = "Manage"
    send = "Send"
    listen = "Listen"


class SBAuthorizationRule:
    def __init__(self, rights):
        self.rights = rights


class _Entity:
    """Options become properties: `lock_duration` is `LockDuration`."""

    def __init__(self, **options):
        self.properties = {_camel(name): value for name, value in options.items()}


class SBQueue(_Entity):
    def __init__(self, enable_partitioning=False, **options):
        # A partitioned queue promises less than one that is not, so any will do.
        super().__init__(**options)


class SBSubscription(_Entity):
    pass


def _camel(name):
    return "".join(part.capitalize() for part in name.split("_"))
