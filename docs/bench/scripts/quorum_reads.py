"""What `quorum-reads confirm` costs beside `lease` and beside level `os`: three groups of three nodes each, asked in turns.

    quorum_reads.py SERVER [ROUNDS] [SECONDS]

All nodes have one worker. Each group is asked at its primary by `iolite bench --compare`, which takes turns and gives ratios to the
first one: one connection without a pipeline (round trips), then 50 connections with pipelines of 1 and 16.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time

GROUPS = {
    "os": ["--durability", "os"],
    "lease": ["--durability", "quorum", "--quorum-reads", "lease"],
    "confirm": ["--durability", "quorum", "--quorum-reads", "confirm"],
}
FIRST_PORT = 24100
LOADS = [("one connection", ["-c", "1", "-P", "1"]), ("50, pipeline 1", ["-c", "50", "-P", "1"]), ("50, pipeline 16", ["-c", "50", "-P", "16"])]


def ask(port, *words):
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.settimeout(5)
        link.sendall(request.encode())
        return link.recv(1 << 20).decode()


def fields(port):
    lines = ask(port, "INFO", "replication").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def wait(what, is_so):
    for _ in range(600):
        try:
            if is_so():
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"not {what} within a minute")


def start(server, directory, number, more):
    ports = [FIRST_PORT + 10 * number + at for at in range(3)]
    nodes = []
    for port in ports:
        path = os.path.join(directory, str(port))
        os.mkdir(path)
        words = [server, "--port", str(port), "--repl-port", str(port + 1000), "--dir", path, "--threads", "1", "--save", ""]
        join = ["--cluster-group", "yes"] if port == ports[0] else ["--join", f"127.0.0.1:{ports[0]}@{ports[0] + 1000}"]
        log = open(os.path.join(path, "log"), "w")
        nodes.append(subprocess.Popen(words + join + more, stdout=log, stderr=log))
        wait("started", lambda: ask(port, "PING"))
    wait("three voters", lambda: fields(ports[0]).get("control_voters") == "3")
    for port in ports[1:]:
        wait("in sync", lambda: fields(port).get("master_link_status") == "up")
    wait("a primary", lambda: ask(ports[0], "SET", "key", "1") == "+OK\r\n")
    return ports[0], nodes


def main():
    server = sys.argv[1]
    rounds, seconds = (sys.argv[2:] + ["5", "3"][len(sys.argv) - 2:])[:2]
    nodes, places = [], []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for number, (name, more) in enumerate(GROUPS.items()):
                port, started = start(server, directory, number, more)
                nodes += started
                places.append(f"{name}=127.0.0.1:{port}")
            # Members that have just come in are in sync and may not count yet.
            time.sleep(3)
            for what, load in LOADS:
                print(f"== {what}", flush=True)
                bench = [server, "bench", "--compare", *places, "--rounds", rounds, "--duration", seconds, "-t", "get,set", "-r", "10000", "--no-progress"]
                subprocess.run(bench + load, check=True)
        finally:
            for node in nodes:
                node.kill()


if __name__ == "__main__":
    main()
