"""Many clients that wait for keys: what each costs in memory, and all of them in processor time.

    python3 blocked.py SERVER COUNT [own]

Starts SERVER (iolite or redis-server) on a port of its own, connects COUNT clients over TCP from several
loopback addresses in processes of their own, has each send `BLPOP key 0` (with `own`, each its own key),
and prints JSON. The number of descriptors that a process may open limits COUNT: ulimit -n.
"""
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time

PORT = 17399
PER_PROCESS = 8000
PER_ADDRESS = 8000


def request(*words):
    parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%s" % (len(words), b"".join(parts))


def connect(number):
    client = socket.socket()
    client.bind(("127.0.0.%d" % (2 + number // PER_ADDRESS), 0))
    client.connect(("127.0.0.1", PORT))
    return client


def crowd(numbers, own, orders, done):
    clients = [connect(number) for number in numbers]
    done.put("connected")
    orders.get()
    for number, client in zip(numbers, clients):
        key = b"key:%d" % number if own else b"key"
        client.sendall(request(b"BLPOP", key, b"0"))
    done.put("blocked")
    orders.get()
    for client in clients:
        client.recv(100)
    done.put("served")
    orders.get()


class Watcher:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        self.socket.sendall(request(*words))
        line = self.file.readline()
        if line[:1] == b"$":
            return self.file.read(int(line[1:]) + 2)
        return line

    def blocked(self):
        text = self.ask(b"INFO", b"clients")
        return int(text.split(b"blocked_clients:")[1].split(b"\r")[0])


def resident(pid):
    with open("/proc/%d/statm" % pid) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_s(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(server, count, own):
    args = [server, "--port", str(PORT), "--save", "", "--appendonly", "no"]
    args += ["--maxclients", str(count + 16), "--protected-mode", "no"]
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    time.sleep(1)
    watcher = Watcher()
    watcher.ask(b"PING")
    figures = {"server": server, "clients": count, "keys": count if own else 1}
    figures["rss_empty"] = resident(process.pid)
    groups = [range(count)[start : start + PER_PROCESS] for start in range(0, count, PER_PROCESS)]
    orders, done = multiprocessing.Queue(), multiprocessing.Queue()
    crowds = [
        multiprocessing.Process(target=crowd, args=(group, own, orders, done)) for group in groups
    ]

    def order():
        for _ in crowds:
            orders.put("go")

    def wait():
        for _ in crowds:
            done.get()

    for one in crowds:
        one.start()
    wait()
    time.sleep(1)
    figures["bytes_each_connected"] = (resident(process.pid) - figures["rss_empty"]) // count
    order()
    wait()
    while watcher.blocked() < count:
        time.sleep(0.05)
    time.sleep(1)
    figures["bytes_each_blocked"] = (resident(process.pid) - figures["rss_empty"]) // count
    before = processor_s(process.pid)
    time.sleep(10)
    figures["idle_cpu_percent"] = round((processor_s(process.pid) - before) * 10, 1)
    order()
    before = processor_s(process.pid)
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        keys = [b"key:%d" % number if own else b"key" for number in numbers]
        watcher.socket.sendall(b"".join(request(b"RPUSH", key, b"v") for key in keys))
        for _ in numbers:
            watcher.file.readline()
    wait()
    figures["cpu_us_each_served"] = round((processor_s(process.pid) - before) * 1e6 / count, 1)
    figures["blocked_at_the_end"] = watcher.blocked()
    order()
    print(json.dumps(figures))
    process.terminate()
    process.wait()


main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3)
