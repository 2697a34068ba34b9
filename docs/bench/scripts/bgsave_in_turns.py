"""BGSAVE of several builds of Iolite in turns: wall, processor time in user mode and in the kernel, memory on top.

python3 bgsave_in_turns.py DIRECTORY KEYS ROUNDS IOLITE...
"""

import os
import shutil
import sys
import threading
import time

BESIDE = os.path.join(os.path.dirname(__file__), "..", "2026-11-21", "ten_million.py")
# Its client, and how it fills and starts a server; not what it measures.
exec(open(BESIDE).read().rsplit("\nmain()", 1)[0])


def modes(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return int(fields[11]) / TICK, int(fields[12]) / TICK


def resident_mib(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024


class Watch(threading.Thread):
    """The most memory that a process has while this runs."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.is_over = pid, False
        self.before = self.most = resident_mib(pid)
        self.start()

    def run(self):
        while not self.is_over:
            self.most = max(self.most, resident_mib(self.pid))
            time.sleep(0.02)

    def on_top(self):
        self.is_over = True
        self.join()
        return self.most - self.before


def save_once(process, client):
    watch, before = Watch(process.pid), modes(process.pid)
    saves = client.info("rdb_saves")
    began = time.monotonic()
    client.ask("BGSAVE")
    while client.info("rdb_saves") == saves:
        time.sleep(0.01)
    wall = time.monotonic() - began
    user, kernel = (now - then for now, then in zip(modes(process.pid), before))
    return wall, user, kernel, watch.on_top()


def measure():
    directory, keys, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    servers = []
    try:
        for number, binary in enumerate(sys.argv[4:]):
            name, place = str(number), os.path.join(directory, str(number))
            shutil.rmtree(place, ignore_errors=True)
            os.makedirs(place)
            PORTS[name] = 17810 + number
            process, client, _ = start(name, binary, place)
            servers.append((binary, process, client))
            client.fill(keys)
        for turn in range(rounds):
            for binary, process, client in servers[:: -1 if turn % 2 else 1]:
                wall, user, kernel, on_top = save_once(process, client)
                print(
                    f"turn {turn} {binary}: wall {wall:.2f} s, user {user:.2f} s, kernel {kernel:.2f} s,"
                    f" {on_top:.0f} MiB on top, load {load_average():.1f}",
                    flush=True,
                )
    finally:
        for _, process, _ in servers:
            process.kill()
            process.wait()


measure()
