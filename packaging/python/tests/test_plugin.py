"""What a wheel must do, run with it installed: ``python -m pytest packaging/python/tests``."""

import socket


def ask(server, text):
    with socket.create_connection((server.host, server.port), timeout=30) as stream:
        stream.sendall(text)
        return stream.recv(1024)


def test_a_server_is_there(iolite):
    assert ask(iolite, b"SET key value\r\n") == b"+OK\r\n"
    assert ask(iolite, b"GET key\r\n") == b"$5\r\nvalue\r\n"


def test_each_test_begins_with_nothing(iolite, iolite_url):
    assert ask(iolite, b"DBSIZE\r\n") == b":0\r\n"
    assert iolite_url == f"redis://127.0.0.1:{iolite.port}/0"


def test_the_session_has_one_server(iolite, iolite_server):
    assert iolite is iolite_server
