"""Fixtures: one server for a test session (for each worker of pytest-xdist), emptied for each test that asks."""

import socket

import pytest

from . import Server


@pytest.fixture(scope="session")
def iolite_server():
    """A server for the whole session."""
    with Server() as server:
        yield server


@pytest.fixture
def iolite(iolite_server):
    """The same server, with nothing in it."""
    with socket.create_connection((iolite_server.host, iolite_server.port), timeout=30) as stream:
        stream.sendall(b"FLUSHALL\r\n")
        assert stream.recv(64).startswith(b"+OK")
    return iolite_server


@pytest.fixture
def iolite_url(iolite):
    """Its address, as clients take it."""
    return iolite.url
