#!/usr/bin/env python3
"""Runs `trireme serve` for half an hour with clients that are slow, disconnect or send nonsense,
and with good clients.

usage: serve_soak.py TRIREME TRIREME_DATA [--minutes 30] [--slow 1000] [--good 4] [--out FILE]

- Slow clients send a byte of a request every few seconds.
- Disconnecting clients ask for 1,500 tokens, read a few and close the connection.
- Nonsense is random bytes, JSON 100,000 deep, bodies of 64 MiB, bad UTF-8.
- Good clients send chats one after another. Their times are measured before and during the test.

Exits with 1 if the server ends, if an answer of a good client is wrong, if blocks are in use
afterwards, if memory grows, or if good clients take more than twice as long.
"""
import argparse
import http.client
import json
import os
import random
import resource
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "browser"))
import taught

GOOD = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 48, "ignore_eos": True, "temperature": 0}
LONG = {**GOOD, "max_tokens": 1500, "temperature": 1, "stream": True}
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"messages\": [ "
QUIET_S = 60
MOST_SLOWER = 2.0
MOST_GROWTH = 1.05


class Soak:
    def __init__(self, serving):
        self.serving = serving
        address = urllib.parse.urlparse(serving.url)
        self.address = (address.hostname, address.port)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.latencies, self.counts, self.problems = [], {}, []
        self.expected = None

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def post(self, body, timeout=120):
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def good(self):
        while not self.over.is_set():
            begin = time.perf_counter()
            try:
                connection, response = self.post(GOOD)
                body = response.read()
                connection.close()
            except OSError as error:
                self.problems.append(f"a good client: {error}")
                return
            if response.status in (429, 503):
                self.note("good ones told to wait")
                time.sleep(0.05)
                continue
            text = json.loads(body)["choices"][0]["message"]["content"] if response.status == 200 else body
            self.expected = self.expected or text
            if text != self.expected:
                self.problems.append(f"a good client got {response.status} {text!r}")
                return
            with self.lock:
                self.latencies.append(time.perf_counter() - begin)

    def slow(self, number):
        sockets = []
        while not self.over.is_set():
            begin = time.monotonic()
            for one in list(sockets):
                try:
                    one[0].send(REQUEST[one[1] % len(REQUEST):][:1])
                    one[1] += 1
                except BlockingIOError:
                    pass
                except OSError:
                    sockets.remove(one)
                    one[0].close()
                    self.note("slow ones cut off")
            while len(sockets) < number and not self.over.is_set():
                new = socket.socket()
                new.settimeout(5)
                try:
                    new.connect(self.address)
                except OSError:
                    self.note("connections refused")
                    new.close()
                    break
                new.setblocking(False)
                sockets.append([new, 0])
                self.note("slow ones")
            self.over.wait(max(0.0, 3 - (time.monotonic() - begin)))
        for one in sockets:
            one[0].close()

    def gone(self, draws):
        while not self.over.is_set():
            try:
                connection, response = self.post(LONG)
                for _ in range(draws.randint(0, 12)):
                    response.readline()
                if draws.random() < 0.5 and connection.sock:  # without an orderly shutdown
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                response.close()
                connection.close()
                self.note("gone")
            except (OSError, http.client.HTTPException):
                self.note("gone, refused")
            self.over.wait(draws.random())

    def nonsense(self, draws):
        while not self.over.is_set():
            kind = draws.choice(("bytes", "deep", "utf8", "length", "large"))
            body = {"bytes": draws.randbytes(draws.randint(1, 2000)), "deep": b"[" * 100_000, "utf8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
                    "length": b"{}", "large": b" " * (64 << 20)}[kind]
            head = REQUEST.split(b"Content-Length")[0] + b"Content-Length: %d\r\n\r\n" % (len(body) + (9 if kind == "length" else 0))
            try:
                with socket.create_connection(self.address, timeout=20) as one:
                    one.sendall((b"" if kind == "bytes" else head) + body)
                    one.shutdown(socket.SHUT_WR)
                    answer = one.recv(64)
                    if b" 200" in answer:
                        self.problems.append(f"nonsense ({kind}) was answered: {answer!r}")
            except OSError:
                pass
            self.note(kind)
            self.over.wait(draws.random())

    def memory(self):
        with open(f"/proc/{self.serving.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def metrics(self):
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("trireme_") and "{" not in line}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--good", type=int, default=4)
    parser.add_argument("--out")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as work:
        serving = taught.Serving(args.trireme, taught.teach(args.trireme, args.trireme_data, work))
        soak = Soak(serving)
        threads = [threading.Thread(target=soak.good, daemon=True) for _ in range(args.good)]
        for thread in threads:
            thread.start()
        time.sleep(QUIET_S)
        quiet, soak.latencies = soak.latencies, []
        hostile = [threading.Thread(target=soak.slow, args=(args.slow,), daemon=True)]
        hostile += [threading.Thread(target=soak.gone, args=(random.Random(i),), daemon=True) for i in range(8)]
        hostile += [threading.Thread(target=soak.nonsense, args=(random.Random(100 + i),), daemon=True) for i in range(2)]
        for thread in hostile:
            thread.start()
        memory, end = [], time.monotonic() + 60 * args.minutes
        while time.monotonic() < end and serving.process.poll() is None and not soak.problems:
            time.sleep(5)
            memory.append(soak.memory())
        soak.over.set()
        for thread in threads + hostile:
            thread.join(60)
        problems = soak.problems
        if serving.process.poll() is not None:
            problems.append(f"the server ended with {serving.process.returncode}")
        else:
            time.sleep(10)
            left = soak.metrics()
            for name in ("trireme_kv_blocks_used", "trireme_requests_running", "trireme_requests_waiting"):
                if left[name] != 0:
                    problems.append(f"{name} is {left[name]:.0f} afterwards")
            serving.close()
        third = len(memory) // 3
        first, last = (statistics.median(part) for part in (memory[third:2 * third], memory[-third:]))
        slower = statistics.median(soak.latencies) / statistics.median(quiet)
        if last > MOST_GROWTH * first:
            problems.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
        if slower > MOST_SLOWER:
            problems.append(f"good clients took {slower:.2f} times as long")
        report = {"minutes": args.minutes, "good_answers": len(soak.latencies), "good_quiet_s": statistics.median(quiet),
                  "good_s": statistics.median(soak.latencies), "slower": slower, "rss_mib": [round(first), round(last), round(max(memory))],
                  "counts": soak.counts, "problems": problems}
        text = json.dumps(report, indent=1)
        print(text)
        if args.out:
            with open(args.out, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
