"""The load of the serving measurements: chats with 16 to 256 tokens, answers with 16 to 128 tokens, and clients that each send the next
request when they have an answer. tests/bench/compare_serve.py and the part `serve` of the check use it."""
import http.client
import json
import random
import signal
import subprocess
import threading
import time

WAIT_S = 300
WORDS = ("river", "stone", "north", "light", "seven", "green", "slow", "house")


class NoAnswer(Exception):
    """The server does not answer; the message names its command."""


def chat_of(draws, words):
    return " ".join(draws.choice(WORDS) for _ in range(words))


def mixed(number):
    draws = random.Random(7)
    return [(chat_of(draws, draws.randint(8, 120)), draws.randint(16, 128)) for _ in range(number)]


class Server:
    """A server process and requests to it, always for the most likely token."""

    def __init__(self, command, port, model, wait_s=WAIT_S, env=None, log=subprocess.DEVNULL):
        self.port, self.model = port, model
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=log, env=env)
        end = time.monotonic() + wait_s
        while True:
            try:
                self.answer("hello", 2)
                return
            except (OSError, http.client.HTTPException, KeyError, ValueError):
                if time.monotonic() > end or self.process.poll() is not None:
                    self.stop()
                    raise NoAnswer(f"{' '.join(map(str, command))} answers nothing") from None
                time.sleep(0.5)

    def post(self, text, max_tokens, **extra):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0, **extra}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def answer(self, text, max_tokens):
        """Returns the number of completion tokens."""
        return json.loads(self.post(text, max_tokens).read())["usage"]["completion_tokens"]

    def stream(self, text, max_tokens):
        """Returns the times at which tokens of the answer came, from the request on. Uses the
        log-probabilities, because a token may have no text of its own (half a letter, or one
        that the tokenizer does not know)."""
        begin, times = time.perf_counter(), []
        for line in self.post(text, max_tokens, stream=True, logprobs=True):
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                if choices and (choices[0].get("logprobs") or {}).get("content"):
                    times.append(time.perf_counter() - begin)
        return times

    def metric(self, name):
        """Returns a number of GET /metrics. Raises KeyError if the server does not have it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        numbers = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return float(numbers[name])

    def stop(self):
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def by_clients(number, requests, call):
    """Returns the results of `call` for all requests, and the seconds. Raises the first error of a client."""
    left, results, errors, lock = list(requests), [], [], threading.Lock()

    def client():
        while True:
            with lock:
                if not left or errors:
                    return
                one = left.pop()
            try:
                result = call(*one)
            except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
                with lock:
                    errors.append(error)
                return
            with lock:
                results.append(result)
    threads = [threading.Thread(target=client) for _ in range(number)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise NoAnswer(f"a request failed: {errors[0]!r}")
    return results, time.perf_counter() - begin


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measured(server, clients, number):
    """Returns completion tokens per second without streaming, and times to the first token and between tokens of streamed answers in
    milliseconds."""
    tokens, seconds = by_clients(clients, mixed(number), server.answer)
    streams, _ = by_clients(clients, mixed(number), server.stream)
    first = [1e3 * times[0] for times in streams if times]
    gaps = [1e3 * (b - a) for times in streams for a, b in zip(times, times[1:])]
    return {"clients": clients, "requests": number, "tokens_per_s": sum(tokens) / seconds,
            **{f"{name}_p{int(100 * share)}_ms": quantile(values, share) for name, values in (("first_token", first), ("between_tokens", gaps))
               for share in (0.5, 0.99) if values}}
