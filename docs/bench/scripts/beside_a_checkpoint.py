"""A writer at full speed beside checkpoints, of one server or of several in turns.

    python3 beside_a_checkpoint.py DIR PORT KEYS GENERATOR NAME=BINARY...

Servers have core 0 alone and one worker, no log and no save points; the generator (`GENERATOR bench`, any version) has core 1: 50
connections, pipeline P (16), values of 100 bytes at random keys of KEYS. Each server is filled, makes a checkpoint while nobody
wants anything, and then in each round SETs for SEC seconds (6) without checkpoints and with BGSAVE again and again.
With OPEN (requests a second) the latencies are those of a second generator beside it, of real-time priority, that sends so many SETs
on 10 connections whether or not the last ones are answered: the first waits for its own requests only.
Environment: P, SEC, ROUNDS (2), CPUS (0), OPEN (none).
"""

import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

DIR, PORT, KEYS, GENERATOR = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BINARIES = [name.split("=", 1) for name in sys.argv[5:]]
PIPELINE, SECONDS = os.environ.get("P", "16"), float(os.environ.get("SEC", "6"))
ROUNDS, CPUS = int(os.environ.get("ROUNDS", "2")), os.environ.get("CPUS", "0")
OPEN = os.environ.get("OPEN")


def measured(out):
    return json.loads(out[out.index("{") : out.rindex("}") + 1])["runs"][0]


class Server:
    def __init__(self, name, binary, port):
        self.name, self.port, self.place = name, port, DIR / str(port)
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        command = ["taskset", "-c", CPUS, binary, "--port", str(port), "--dir", str(self.place)]
        command += ["--save", "", "--io-threads", "1"]
        self.process = subprocess.Popen(command, stdout=open(self.place / "log", "w"), stderr=subprocess.STDOUT)
        time.sleep(1)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")
        self.pid = int(re.search(r"process_id:(\d+)", self.ask("INFO", "server"))[1])
        self.load = ["taskset", "-c", "1", GENERATOR, "bench", "-p", str(port), "--cpus", "1", "--no-progress"]
        self.probe = ["chrt", "-f", "5", *self.load, "-c", "10", "-P", "1", "--rate", OPEN or ""]
        self.probe += ["-t", "set", "-d", "100", "-r", str(KEYS)]
        self.load += ["-c", "50", "-t", "set", "-d", "100", "-r", str(KEYS)]
        fill = [*self.load, "-P", "100", "-n", str(KEYS), "--sequential", "-q"]
        subprocess.run(fill, check=True, capture_output=True)

    def ask(self, *words):
        text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.socket.sendall(f"*{len(words)}\r\n{text}".encode())
        line = self.file.readline()
        return self.file.read(int(line[1:]) + 2).decode() if line[:1] == b"$" else line.decode()

    def saved_ms(self):
        return [int(ms) for ms in re.findall(r"saved: .* in (\d+) ms", (self.place / "log").read_text())]

    def is_saving(self):
        return "rdb_bgsave_in_progress:1" in self.ask("INFO", "persistence")

    def resident_mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.pid}/status").read_text())[1]) / 1024

    def idle(self):
        began = time.time()
        self.ask("BGSAVE")
        while self.is_saving():
            time.sleep(0.02)
        print(f"{self.name:8} alone: BGSAVE {1000 * (time.time() - began):.0f} ms", flush=True)

    def run(self, saves):
        before, base = len(self.saved_ms()), self.resident_mib()
        top, began = base, time.time()
        def begin(load):
            command = [*load, "--json", "-", "--duration", str(SECONDS)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        load = begin([*self.load, "-P", PIPELINE])
        probe = begin(self.probe) if OPEN else None
        while load.poll() is None:
            if saves and 0.4 < time.time() - began < SECONDS - 0.3 and not self.is_saving():
                self.ask("BGSAVE")
            top = max(top, self.resident_mib())
            time.sleep(0.1)
        found = measured(load.communicate()[0])
        latency = (measured(probe.communicate()[0]) if probe else found)["latency"]
        row = [found["requests"] / found["wall_ns"] * 1e3]
        row += [latency[field] / 1e6 for field in ("p50_ns", "p99_ns", "p999_ns", "max_ns")]
        print(
            f"{self.name:8} {'saving' if saves else 'alone':6} {row[0]:.2f} M/s p50 {row[1]:.2f} p99 {row[2]:.2f} "
            f"p99.9 {row[3]:.2f} longest {row[4]:.2f} ms, +{top - base:.0f} MiB, checkpoints {self.saved_ms()[before:]}",
            flush=True,
        )
        while self.is_saving():
            time.sleep(0.02)
        return row


servers = [Server(name, binary, PORT + at) for at, (name, binary) in enumerate(BINARIES)]
try:
    for server in servers:
        server.idle()
    rows = {server.name: ([], []) for server in servers}
    for _ in range(ROUNDS):
        for server in servers:
            for saves in (False, True):
                rows[server.name][saves].append(server.run(saves))
    for name, both in rows.items():
        alone, saving = ([statistics.median(column) for column in zip(*part)] for part in both)
        print(
            f"{name:8} medians: rate {alone[0]:.2f} and {saving[0]:.2f} M/s, p99 {alone[2]:.2f} and {saving[2]:.2f} ms "
            f"({saving[2] / alone[2]:.2f}), p99.9 {alone[3]:.2f} and {saving[3]:.2f} ms, longest {alone[4]:.1f} and {saving[4]:.1f} ms"
        )
finally:
    for server in servers:
        server.process.terminate()
        server.process.wait()
        shutil.rmtree(server.place, ignore_errors=True)
