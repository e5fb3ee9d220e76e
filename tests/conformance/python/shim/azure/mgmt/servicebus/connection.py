"""Where the emulator is."""

import os

STRING = os.environ["SERVICEBUS_CONNECTION_STRING"].rstrip(";")
CONTROL_URL = os.environ["EMULATOR_CONTROL_URL"]

_PARTS = dict(part.split("=", 1) for part in STRING.split(";"))

HOST, _, PORT = _PARTS["Endpoint"].removeprefix("sb://").rpartition(":")
KEY_NAME = _PARTS["SharedAccessKeyName"]
KEY = _PARTS["SharedAccessKey"]
