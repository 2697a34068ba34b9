"""Fan-out: processor time of a server for each message that it delivers.

usage: fan_out.py PORT PID SUBSCRIBERS MESSAGES PIPELINE

One publisher, one channel, messages of 64 bytes. The subscribers read whatever there is, as one
process; only the server's own time (user and system, of all its threads) counts.
"""
import os
import select
import socket
import sys
import threading
import time

port, pid, subs, messages, pipe = map(int, sys.argv[1:6])
def cpu():
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")
poll = select.epoll()
socks = {}
for _ in range(subs):
    s = socket.create_connection(("127.0.0.1", port)); s.sendall(b"SUBSCRIBE news\r\n"); s.recv(1000)
    s.setblocking(False); poll.register(s, select.EPOLLIN); socks[s.fileno()] = s
payload = b"x" * 64
body = b"*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$64\r\n" + payload + b"\r\n"
one = len(b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$64\r\n" + payload + b"\r\n")
expected = one * messages * subs
reply = f":{subs}\r\n".encode()
def publish():
    p = socket.create_connection(("127.0.0.1", port))
    for _ in range(messages // pipe):
        p.sendall(body * pipe); left = len(reply) * pipe
        while left: left -= len(p.recv(65536))
before, start = cpu(), time.time()
t = threading.Thread(target=publish); t.start()
got = reads = 0
while got < expected:
    for fd, _ in poll.poll(5):
        try:
            n = len(socks[fd].recv(1 << 18)); got += n; reads += 1
            if n == 0: print("closed", fd); sys.exit(1)
        except BlockingIOError: pass
t.join()
used = cpu() - before
print(f"{subs} subscribers, {messages} messages, pipeline {pipe}: {used:.2f} s CPU, {used / (messages * subs) * 1e9:.0f} ns per delivered message, {messages * subs / reads:.1f} messages per read, {time.time() - start:.1f} s", flush=True)
