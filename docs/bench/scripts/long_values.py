"""How fast a checkpoint of long values is written, beside `fio` on the same device, in turns.

    python3 long_values.py IOLITE DIR PORT DEVICE [KEYS [VALUE_BYTES [TURNS]]]

DEVICE is the name in /proc/diskstats of the device that DIR is on (vda); nothing else should use it. Each turn makes a BGSAVE while
nobody wants anything, and then has `fio` write as many bytes: through the system's cache with a sync at the end, and past it,
to one file and to two. Of the checkpoint are told its bytes by the time from its begin to its end, with its files read again, and
what the device took from the first write to the last.
"""

import json
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

IOLITE, DIR, PORT, DEVICE = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
KEYS, VALUE_BYTES, TURNS = (int(word) for word in (sys.argv[5:] + ["200000", "10000", "4"][len(sys.argv) - 5 :]))
FIO = {
    "through the cache, 1 file": (1, "--bs=256k"),
    "through the cache, 2 files": (2, "--bs=256k"),
    "past the cache, 1 file": (1, "--bs=1m --direct=1"),
    "past the cache, 2 files": (2, "--bs=1m --direct=1"),
}


class Writes:
    """What the device takes, looked at every 20 ms."""

    def __init__(self):
        self.looks, self.goes_on = [], True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.goes_on:
            lines = pathlib.Path("/proc/diskstats").read_text().splitlines()
            fields = next(fields for fields in map(str.split, lines) if fields[2] == DEVICE)
            self.looks.append((time.monotonic(), int(fields[9]) * 512))
            time.sleep(0.02)

    def mb_per_second(self):
        """From the first look behind which it took 4 MB and more until the last."""
        self.goes_on = False
        self.thread.join()
        pairs = list(zip(self.looks, self.looks[1:]))
        busy = [pair for pair in pairs if pair[1][1] - pair[0][1] > 4_000_000]
        (began, before), (ended, after) = busy[0][0], busy[-1][1]
        return (after - before) / 1e6 / (ended - began)


def ask(*words):
    with socket.create_connection(("127.0.0.1", int(PORT))) as connection:
        connection.sendall(" ".join(words).encode() + b"\r\n")
        connection.settimeout(5)
        reply = connection.recv(1 << 16)
        return reply.decode()


def fio(bytes_each, jobs, options):
    place = DIR / "fio"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    command = f"fio --name=w --directory={place} --rw=write --size={bytes_each} --numjobs={jobs} --end_fsync=1"
    command += f" --output-format=json --group_reporting {options}"
    output = subprocess.run(command.split(), check=True, capture_output=True).stdout
    shutil.rmtree(place)
    return json.loads(output)["jobs"][0]["write"]["bw_bytes"] / 1e6


shutil.rmtree(DIR, ignore_errors=True)
(DIR / "data").mkdir(parents=True)
command = [IOLITE, "--port", PORT, "--dir", DIR / "data", "--save", "", "--durability", "checkpoint"]
server = subprocess.Popen(command, stdout=open(DIR / "log", "w"))
try:
    time.sleep(1)
    fill = [IOLITE, "bench", "-p", PORT, "-t", "set", "-d", str(VALUE_BYTES), "-r", str(KEYS), "-n", str(KEYS), "--sequential"]
    subprocess.run([*fill, "-P", "8", "-c", "8", "-q", "--no-progress"], check=True, capture_output=True)
    rates = {}
    for turn in range(TURNS):
        writes = Writes()
        ask("BGSAVE")
        while "rdb_bgsave_in_progress:1" in ask("INFO", "persistence"):
            time.sleep(0.01)
        rate = writes.mb_per_second()
        saved = re.findall(r"saved: \d+ records, (\d+) bytes in (\d+) ms", (DIR / "log").read_text())[-1]
        saved_bytes, ms = int(saved[0]), int(saved[1])
        turn_rates = {"checkpoint, its writes": rate, "checkpoint, all of it": saved_bytes / 1e3 / ms}
        for name, (jobs, options) in FIO.items():
            turn_rates[name] = fio(saved_bytes // jobs, jobs, options)
        print(f"turn {turn}: " + ", ".join(f"{name} {rate:.0f}" for name, rate in turn_rates.items()), flush=True)
        for name, rate in turn_rates.items():
            rates.setdefault(name, []).append(rate)
    print("medians, MB/s: " + ", ".join(f"{name} {statistics.median(all_of):.0f}" for name, all_of in rates.items()))
finally:
    server.kill()
    server.wait()
    shutil.rmtree(DIR, ignore_errors=True)
