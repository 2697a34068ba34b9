"""Iolite as a program that Python finds: ``iolite.program()``, and ``iolite.Server`` for tests."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["Server", "main", "program"]


def program():
    """The server: what ``IOLITE_PROGRAM`` names, else the one in this package."""
    return os.environ.get("IOLITE_PROGRAM") or str(Path(__file__).with_name("bin") / "iolite")


class Server:
    """A server on a free port of this machine, with a directory of its own; nothing of it is left afterwards."""

    START_S_MAX = 30

    def __init__(self, *arguments):
        self.arguments = arguments
        self.host, self.port = "127.0.0.1", None
        self._process = self._directory = None

    @property
    def url(self):
        return f"redis://{self.host}:{self.port}/0"

    def start(self):
        self._directory = tempfile.mkdtemp(prefix="iolite-")
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port = free.getsockname()[1]
        log = Path(self._directory) / "log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [program(), "--port", str(self.port), "--bind", self.host, "--dir", self._directory, "--save", "",
                 *self.arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until = time.monotonic() + self.START_S_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = log.read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"iolite did not start:\n{text}")
            time.sleep(0.002)
        return self

    def _answers(self):
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as stream:
                stream.sendall(b"PING\r\n")
                # An error, too, is an answer: a password may be set.
                return stream.recv(64)[:1] in (b"+", b"-")
        except OSError:
            return False

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def main():
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
