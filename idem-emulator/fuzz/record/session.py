"""What the Python client, azure-servicebus, sends: a connection for each sender and receiver."""

import os
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)

# The replay's clock must not have come to it.
FAR = datetime(2150, 1, 1, tzinfo=timezone.utc)


def send(client):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(
            ServiceBusMessage(
                b"body",
                message_id="m-1",
                subject="subject",
                application_properties={"colour": "red", "weight": 3, "exact": 0.5},
                time_to_live=timedelta(hours=1),
            )
        )
        batch = sender.create_message_batch()
        for number in range(5):
            batch.add_message(ServiceBusMessage(f"body {number}", message_id=f"b-{number}"))
        sender.send_messages(batch)
        numbers = sender.schedule_messages([ServiceBusMessage("later"), ServiceBusMessage("too")], FAR)
        sender.cancel_scheduled_messages(numbers)
    with client.get_topic_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("body", subject="all", application_properties={"colour": "red"}))


def receive(client):
    with client.get_queue_receiver("orders") as receiver:
        receiver.peek_messages(10)
        one, two, three, four = receiver.receive_messages(4, max_wait_time=5)
        receiver.renew_message_lock(one)
        receiver.complete_message(one)
        receiver.abandon_message(two)
        receiver.dead_letter_message(three, reason="why", error_description="because")
        receiver.defer_message(four)
        (deferred,) = receiver.receive_deferred_messages(four.sequence_number)
        receiver.complete_message(deferred)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        for message in receiver.receive_messages(1, max_wait_time=5):
            receiver.complete_message(message)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("orders", receive_mode=mode, prefetch_count=2) as receiver:
        receiver.receive_messages(2, max_wait_time=5)
    with client.get_subscription_receiver("events", "all") as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.complete_message(message)


def sessions(client):
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages(ServiceBusMessage("body", session_id="s-2"))
    with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        receiver.session.set_state(b"half done")
        receiver.session.get_state()
        receiver.session.renew_lock()
        one, two = receiver.receive_messages(2, max_wait_time=5)
        receiver.complete_message(one)
        receiver.defer_message(two)
        for message in receiver.receive_deferred_messages(two.sequence_number):
            receiver.abandon_message(message)
    with client.get_queue_receiver("sessions", session_id="s-1") as receiver:
        for message in receiver.receive_messages(1, max_wait_time=5):
            receiver.complete_message(message)


with ExitStack() as stack:
    connection_string = os.environ["SERVICEBUS_CONNECTION_STRING"]
    client = stack.enter_context(ServiceBusClient.from_connection_string(connection_string, retry_total=0))
    send(client)
    receive(client)
    sessions(client)
