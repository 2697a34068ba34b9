#!/usr/bin/env python3
"""Reads of values that are out of memory, beside what the device gives: servers in turns, fio before each.

    docs/bench/scripts/tier_reads.py NAME='BINARY [OPTIONS]' ... [--keys 1000000] [--max 110mb] [--rounds 3] [--seconds 3] [--threads 2]

Each server has its keys of 16 bytes with values of 1 KiB in a directory of its own below the present one, next to the file
that fio reads: 4 KiB at a time, direct, as deep as the server is asked. Segments are dropped from the system's cache before
each run. A line says: reads a second, the ratio to fio's of the same minute, p50 and p99, processor time of the server a
request. The last lines are medians of all rounds. "hot" are the same requests of one key in memory; "beside" is the like by 8
connections while "many" of cold ones go on, with its ratio to hot ones alone in place of that to fio.
"""
import argparse, json, os, random, shlex, shutil, statistics, subprocess, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("servers", nargs="+")
parser.add_argument("--keys", type=int, default=1_000_000)
parser.add_argument("--max", default="110mb")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=int, default=3)
parser.add_argument("--port", type=int, default=22400)
parser.add_argument("--only", default="lone,many,one,beside")
parser.add_argument("--threads", default="2", help="of the server: with fewer than cores it looks for what the device says before it sleeps")
options = parser.parse_args()

# Name, connections, pipeline, threads of fio and their depth: of two workers each has 64 reads under way.
BESIDE = (8, 1)
LOADS = {"lone": (1, 1, (1, 1)), "many": (64, 16, (2, 64)), "one": (1, 256, (1, 64))}
FILE_BYTES = 1 << 30
home = tempfile.mkdtemp(prefix="tier-reads-", dir=".")


class Server:
    def __init__(self, number, text):
        self.name, command = text.split("=", 1)
        self.port = options.port + number
        self.command = shlex.split(command)
        self.directory = os.path.join(home, self.name)
        os.mkdir(self.directory)
        self.process = subprocess.Popen(
            self.command
            + ["--port", str(self.port), "--dir", self.directory, "--tier-path", ".", "--maxmemory", options.max]
            + ["--tier-compression", "no", "--tier-promotion", "never", "--tier-scrub", "0"]
            + ["--save", "", "--durability", "none", "--threads", options.threads],
            stdout=open(os.path.join(home, self.name + ".log"), "w"),
            stderr=subprocess.STDOUT,
        )
        time.sleep(1)
        self.bench(8, 32, "set", ["-n", str(options.keys), "--sequential", "-d", "1024"], options.keys)
        time.sleep(2)

    def bench(self, connections, pipeline, test, more, keys):
        out = os.path.join(home, "out.json")
        subprocess.run(
            self.load(connections, pipeline, test, ["--json", out, *more], keys),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return json.load(open(out))["runs"][0]

    def load(self, connections, pipeline, test, more, keys):
        return (
            [self.command[0], "bench", "-p", str(self.port), "-c", str(connections), "-P", str(pipeline), "-t", test]
            # Other keys each time: a server has the last it read at hand.
            + ["-r", str(keys), "--seed", str(random.getrandbits(32)), "--no-progress", *more]
        )

    def beside(self):
        """The same hot requests alone, and beside cold ones."""
        alone = self.bench(*BESIDE, "get", ["--duration", str(options.seconds)], 1)
        self.forget()
        long = str(options.seconds + 1)
        others = self.load(*LOADS["many"][:2], "get", ["--duration", long], options.keys)
        others = subprocess.Popen(others, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        beside = self.bench(*BESIDE, "get", ["--duration", str(options.seconds)], 1)
        others.wait()
        return measured(alone), measured(beside)

    def forget(self):
        """Has the system forget the pages of the segments."""
        for folder, _, names in os.walk(os.path.join(self.directory, "tier")):
            for name in names:
                descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    def stop(self):
        self.process.kill()
        self.process.wait()


def fio(jobs, depth):
    """Reads a second, and p50 and p99 in microseconds."""
    path = os.path.join(home, "fio")
    said = subprocess.run(
        ["fio", "--name=reads", f"--filename={path}", f"--size={FILE_BYTES}", "--rw=randread", "--bs=4k", "--direct=1"]
        + [f"--numjobs={jobs}", "--group_reporting", f"--iodepth={depth}", "--ioengine=io_uring", f"--runtime={options.seconds}", "--time_based"]
        + ["--output-format=json"],
        check=True,
        capture_output=True,
        text=True,
    )
    read = json.loads(said.stdout)["jobs"][0]["read"]
    percentiles = read["clat_ns"]["percentile"]
    return read["iops"], percentiles["50.000000"] / 1000, percentiles["99.000000"] / 1000


def measured(run):
    seconds = run["wall_ns"] / 1e9
    latency = run["latency"]
    cpu_us = run["server_use"]["cpu_ns"] / run["requests"] / 1000
    return run["requests"] / seconds, latency["p50_ns"] / 1000, latency["p99_ns"] / 1000, cpu_us


def main():
    servers = [Server(number, text) for number, text in enumerate(options.servers)]
    loads = [load for load in options.only.split(",") if load in LOADS]
    rows = {}
    try:
        for server in servers:
            for load in loads:
                connections, pipeline, _ = LOADS[load]
                server.bench(connections, pipeline, "set", ["-n", "1000", "-d", "1024"], 1)
                run = server.bench(connections, pipeline, "get", ["--duration", "2"], 1)
                rate, p50, p99, cpu = measured(run)
                print(f"{load:5} {server.name:12} hot     {rate:9.0f}/s          p50 {p50:7.1f} p99 {p99:8.1f} us, cpu {cpu:5.2f} us")
        for _ in range(options.rounds):
            for load in loads:
                connections, pipeline, depth = LOADS[load]
                device = fio(*depth)
                print(f"{load:5} {'fio':12} {depth[0]} x {depth[1]:2}  {device[0]:9.0f}/s          p50 {device[1]:7.1f} p99 {device[2]:8.1f} us", flush=True)
                for server in servers:
                    server.forget()
                    run = server.bench(connections, pipeline, "get", ["--duration", str(options.seconds)], options.keys)
                    rate, p50, p99, cpu = measured(run)
                    ratio = rate / device[0]
                    rows.setdefault((load, server.name), []).append((rate, ratio, p50, p50 - device[1], p99, p99 / device[2], cpu))
                    print(
                        f"{load:5} {server.name:12} cold    {rate:9.0f}/s  {ratio:5.2f}   p50 {p50:7.1f} p99 {p99:8.1f} us, cpu {cpu:5.2f} us",
                        flush=True,
                    )
            for server in servers if "beside" in options.only else []:
                (alone, _, p99_alone, _), (rate, p50, p99, cpu) = server.beside()
                row = (rate, rate / alone, p50, 0, p99, p99 / p99_alone, cpu)
                rows.setdefault(("beside", server.name), []).append(row)
                print(f"hot beside cold {server.name:12} {rate:9.0f}/s of {alone:9.0f}, p99 {p99:8.1f} of {p99_alone:8.1f} us", flush=True)
        print("median of rounds: reads/s, ratio to fio, p50, p50 - fio's, p99, p99 / fio's, cpu")
        for (load, name), all in rows.items():
            middle = [statistics.median(column) for column in zip(*all)]
            print(f"{load:6} {name:12}", *(f"{value:9.2f}" for value in middle))
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(home)


main()
