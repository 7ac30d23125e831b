"""Where the server listens."""

import socket

from triphase.server.run import Address, listen


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_beginning() -> None:
    with listen(Address(port=0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
