"""What watching costs: a scrape a second, three event streams and a tab that goes through the views, beside a server that works.

    console_cost.py SERVER [ROUNDS]
    console_cost.py SERVER [ROUNDS] latency [RATE]

Rounds with and without who watches take turns, each of the same number of requests. Per round: the processor time of the
process by thread, and where the machine counts them, instructions in user space. Needs redis-benchmark, perf, playwright and
Debian's chromium-headless-shell.

With `latency`: GETs at half of what the server can do, or so many a second, from one core to the server on the other. What a tab asks for is taken
down once and sent again at the same pace by this program, since a browser takes the load's core for itself. The same scrapes,
streams and requests are there in all rounds, and go to this server or, in turns, to another one that has nothing to do.
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
import urllib.error
import urllib.request

PORT, HTTP, REQUESTS = 23010, 23011, 6_000_000
OTHER_PORT, OTHER_HTTP = 23012, 23013
# Of a round of latencies.
SECONDS = 8
VIEWS = ["overview", "commands", "keys", "clients", "slow", "persistence", "replication", "config", "users", "log"]


def threads(pid):
    """Seconds of processor time by thread."""
    times = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            ns = int(file.read().split()[0])
        with open(f"/proc/{pid}/task/{task}/comm") as file:
            times[(task, file.read().strip())] = ns / 1e9
    return times


def scrape(over, base):
    while not over.wait(1):
        urllib.request.urlopen(base + "metrics").read()


def stream(over, base, cookie):
    request = urllib.request.Request(base + "events", headers={"Cookie": cookie})
    with urllib.request.urlopen(request) as answer:
        while not over.is_set() and answer.readline():
            pass
        assert over.is_set(), "the stream has ended"


def browse(over, base, ready, taken=None):
    """Goes through the views; what they ask for goes to `taken`, if given: seconds since it began, method, path, body. Not the
    login, which would end the session that asks again."""
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        if taken is not None:
            begin = time.monotonic()
            page.on("request", lambda one: one.url.endswith(("/events", "/login")) or taken.append((time.monotonic() - begin, one.method, one.url[len(base):], one.post_data)))
        page.goto(base)
        ready.set()
        at = 0
        while not over.is_set():
            page.goto(f"{base}#{VIEWS[at % len(VIEWS)]}")
            page.wait_for_timeout(4000)
            at += 1
        browser.close()


def browse_again(over, base, ready, taken, cookie):
    """Sends what a tab asked for, again and again, at its pace."""
    ready.set()
    while not over.is_set():
        begin = time.monotonic()
        for at, method, path, body in taken:
            if over.wait(max(0, begin + at - time.monotonic())):
                return
            headers = {"Cookie": cookie, "Content-Type": "application/json", "X-Iolite": "1"}
            request = urllib.request.Request(base + path, method=method, headers=headers, data=body.encode() if body else None)
            try:
                urllib.request.urlopen(request).read()
            except urllib.error.HTTPError:
                # As the tab had it.
                pass


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


def watched(measure, http=HTTP, taken=None):
    """What is measured while somebody watches the server at this port: in a browser, or with the requests of one."""
    over, ready, base = threading.Event(), threading.Event(), f"http://127.0.0.1:{http}/"
    login = urllib.request.Request(base + "login", data=b'{"user":"default","password":""}', headers={"Content-Type": "application/json", "X-Iolite": "1"})
    cookie = urllib.request.urlopen(login).headers["Set-Cookie"].split(";")[0]
    who = [threading.Thread(target=scrape, args=(over, base)), *[threading.Thread(target=stream, args=(over, base, cookie)) for _ in range(3)],
           threading.Thread(target=browse, args=(over, base, ready)) if taken is None else
           threading.Thread(target=browse_again, args=(over, base, ready, taken, cookie))]
    for one in who:
        one.start()
    ready.wait()
    time.sleep(2)
    told = measure()
    over.set()
    for one in who:
        one.join()
    return told


def start(program, port, http, directory, core):
    words = [program, "--port", str(port), "--http-port", str(http), "--threads", "1", "--dir", directory, "--save", ""]
    server = subprocess.Popen(["taskset", "-c", str(core), *words], stdout=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", http)).close()
            return server
        except OSError:
            time.sleep(0.1)


def latencies(program, rate):
    words = [program, "bench", "-p", str(PORT), "-t", "get", "-r", "100000", "-d", "100", "-c", "10", "--duration", str(SECONDS), "--json", "-", "--no-progress"]
    words += ["--rate", str(rate)] if rate else ["-P", "1"]
    text = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout
    run = json.loads(text[text.index("\n{") :])["runs"][0]
    return figures(run["latency"]["buckets"])


def figures(buckets):
    """Requests, and percentiles in microseconds, of pairs of nanoseconds and counts."""
    count, told = sum(pair[1] for pair in buckets), {}
    for name, share in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)]:
        seen = 0
        for ns, number in buckets:
            seen += number
            if seen >= share * count:
                told[name] = ns / 1000
                break
    return {"count": count, **told}


def latency(program, rounds, rate=None):
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as other:
        servers = [start(program, PORT, HTTP, directory, 0), start(program, OTHER_PORT, OTHER_HTTP, other, 1)]
        try:
            taken, over = [], threading.Event()
            threading.Timer(4 * len(VIEWS), over.set).start()
            browse(over, f"http://127.0.0.1:{HTTP}/", threading.Event(), taken)
            print(f"a tab asks {len(taken)} times in {4 * len(VIEWS)} s")
            most = latencies(program, None)["count"] / SECONDS
            told = {"alone": [], "watched": []}
            for _ in range(rounds):
                for name, http in [("alone", OTHER_HTTP), ("watched", HTTP)]:
                    told[name].append(watched(lambda: latencies(program, rate or int(most / 2)), http, taken))
        finally:
            for server in servers:
                server.terminate()
                server.wait()
    print(f"most {most:.0f} requests a second; at {rate or int(most / 2)}, microseconds:")
    for name, all in told.items():
        for field in ["p50", "p99", "p999"]:
            values = [one[field] for one in all]
            print(f"{name:8} {field:5} median {statistics.median(values):.1f}  lowest {min(values):.1f}  highest {max(values):.1f}")


def main(program, rounds=5):
    with tempfile.TemporaryDirectory() as directory:
        server = start(program, PORT, HTTP, directory, "0-1")
        try:
            load()
            told = {"alone": [], "watched": []}
            for _ in range(rounds):
                told["alone"].append(measured(server.pid))
                told["watched"].append(watched(lambda: measured(server.pid)))
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


if sys.argv[3:4] == ["latency"]:
    latency(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[4:]))
else:
    main(sys.argv[1], int((sys.argv[2:] or ["5"])[0]))
