"""What watching costs: a scrape a second, three event streams and a tab that goes through the views, beside a server that works.

    console_cost.py SERVER [ROUNDS]

Rounds with and without who watches take turns, each of the same number of requests. Per round: the processor time of the
process by thread, and where the machine counts them, instructions in user space. Needs redis-benchmark, perf, playwright and
Debian's chromium-headless-shell.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

PORT, HTTP, REQUESTS = 23010, 23011, 6_000_000
VIEWS = ["overview", "commands", "keys", "clients", "slow", "persistence", "replication", "config", "users", "log"]
BASE = f"http://127.0.0.1:{HTTP}/"


def threads(pid):
    """Seconds of processor time by thread."""
    times = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            ns = int(file.read().split()[0])
        with open(f"/proc/{pid}/task/{task}/comm") as file:
            times[(task, file.read().strip())] = ns / 1e9
    return times


def scrape(over):
    while not over.wait(1):
        urllib.request.urlopen(BASE + "metrics").read()


def stream(over, cookie):
    request = urllib.request.Request(BASE + "events", headers={"Cookie": cookie})
    with urllib.request.urlopen(request) as answer:
        while not over.is_set():
            answer.readline()


def browse(over, ready):
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(BASE)
        ready.set()
        at = 0
        while not over.is_set():
            page.goto(f"{BASE}#{VIEWS[at % len(VIEWS)]}")
            page.wait_for_timeout(4000)
            at += 1
        browser.close()


def load():
    # Paced by the server: as fast as it answers.
    subprocess.run(["redis-benchmark", "-p", str(PORT), "-n", str(REQUESTS), "-P", "16", "-c", "10", "-t", "get", "-q", "-r", "100000", "-d", "100"],
                   stdout=subprocess.DEVNULL, check=True)


def measured(pid):
    counts = tempfile.NamedTemporaryFile()
    perf = subprocess.Popen(["perf", "stat", "-x", ",", "-e", "instructions:u", "-p", str(pid), "-o", counts.name], stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    before, start = threads(pid), time.monotonic()
    load()
    seconds, after = time.monotonic() - start, threads(pid)
    perf.send_signal(2)
    perf.wait()
    spent = {}
    for key, value in after.items():
        spent[key[1]] = spent.get(key[1], 0) + value - before.get(key, 0)
    text = open(counts.name).read()
    first = [line.split(",")[0] for line in text.splitlines() if "instructions" in line]
    return {"seconds": seconds, "cpu": sum(spent.values()), "threads": spent, "instructions": int(first[0]) if first and first[0].isdigit() else None}


def watched(pid):
    over, ready = threading.Event(), threading.Event()
    login = urllib.request.Request(BASE + "login", data=b'{"user":"default","password":""}', headers={"Content-Type": "application/json", "X-Iolite": "1"})
    cookie = urllib.request.urlopen(login).headers["Set-Cookie"].split(";")[0]
    who = [threading.Thread(target=scrape, args=(over,)), *[threading.Thread(target=stream, args=(over, cookie)) for _ in range(3)], threading.Thread(target=browse, args=(over, ready))]
    for one in who:
        one.start()
    ready.wait()
    time.sleep(2)
    told = measured(pid)
    over.set()
    for one in who:
        one.join()
    return told


def main(program, rounds=5):
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen([program, "--port", str(PORT), "--http-port", str(HTTP), "--threads", "1", "--dir", directory, "--save", ""], stdout=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", HTTP)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            load()
            told = {"alone": [], "watched": []}
            for _ in range(int(rounds)):
                told["alone"].append(measured(server.pid))
                told["watched"].append(watched(server.pid))
        finally:
            server.terminate()
            server.wait()
    for name, all in told.items():
        for field in ["seconds", "cpu", "instructions"]:
            values = [one[field] for one in all if one[field] is not None]
            if values:
                print(f"{name:8} {field:13} median {statistics.median(values):.4g}  lowest {min(values):.4g}  highest {max(values):.4g}")
        http = [one["threads"].get("http", 0) for one in all]
        share = [one["threads"].get("http", 0) / one["seconds"] for one in all]
        print(f"{name:8} thread http: median {statistics.median(http):.4f} s a round, {statistics.median(share) * 100:.3f} % of a core")
    print(json.dumps(told))


main(*sys.argv[1:])
