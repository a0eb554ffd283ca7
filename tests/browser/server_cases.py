"""Tests the page with a server that requires a token, is busy, refuses, disconnects or exits."""
import json
import threading
import time
import urllib.error
import urllib.request

import taught
from chat_cases import last_answer, start

SECRET = "open-sesame"
LONG = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 1900, "ignore_eos": True, "temperature": 1}


def load(url, count, enough):
    """Runs `count` clients with long requests next to the page's, one after another until
    `enough` is set."""
    def ask():
        body = json.dumps(LONG).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"}
        while not enough.is_set():
            try:
                urllib.request.urlopen(urllib.request.Request(url + "v1/chat/completions", body, headers), timeout=120).read()
            except urllib.error.HTTPError as error:
                assert error.code in (429, 503), error.read()  # busy, ending
                time.sleep(0.01)
            except OSError:
                return  # the server has exited
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    return threads


def refused(page):
    """If the server does not answer a request, the page shows its own message, and the user may
    try again."""
    start(page)
    page.one("#input").send_keys("x")
    page.js("arguments[0].value = 'word '.repeat(9000)", page.one("#input"))
    page.ask("x")
    assert "could not answer" in page.text(".problem") and len(page.text(".problem .said")) > 10
    assert page.text(".problem button") == "Try again"


def line_cut(page):
    start(page)
    page.offline(True)
    page.ask("short")
    assert "connection to the server was lost" in page.text(".problem")
    page.until(lambda: page.one("#banner").is_displayed(), "the banner")
    assert not page.one("#send").is_enabled()
    page.offline(False)
    page.until(lambda: not page.one("#banner").is_displayed(), "the end of the banner")
    page.click(page.one(".problem button"))
    page.until_done()
    assert last_answer(page) == "Yes." and not page.all(".problem")


def token(page, serve):
    server = serve("--token", SECRET)
    page.driver.get(server.url)
    page.js("localStorage.clear(); sessionStorage.clear();")
    page.driver.get(server.url)
    page.until(lambda: page.all("dialog #token"), "the question for the token")
    page.one("#token").send_keys("wrong\n")
    page.until_text("dialog .problem", "not accepted")
    page.one("#token").send_keys(SECRET + "\n")
    page.until(lambda: page.js("return document.getElementById('model').options.length") > 0, "the model")
    page.driver.get(server.url)
    page.until(lambda: page.js("return document.getElementById('model').options.length") > 0, "the model, without a question")
    page.set_number("temperature", 0)
    page.ask("short")
    assert last_answer(page) == "Yes." and SECRET not in page.js("return JSON.stringify(localStorage)")


def busy(page, serve):
    server = serve("--max-batch", "1", "--max-queue", "1")
    page.driver.get(server.url)
    page.set_number("temperature", 0)
    enough = threading.Event()
    threads = load(server.url, 6, enough)
    page.send("short")
    page.until_text(".waiting", "The server is busy")
    enough.set()
    for thread in threads:
        thread.join()
    page.until_done()
    assert last_answer(page) == "Yes."


def ending(page, serve):
    server = serve("--drain-s", "30")
    page.driver.get(server.url)
    page.until(lambda: page.js("return document.getElementById('model').options.length") > 0, "the model")
    enough = threading.Event()
    load(server.url, 8, enough)
    server.stop()
    page.send("short")
    page.until_text(".problem", "server")
    assert any(words in page.text(".problem") for words in ("no new requests", "connection"))
    page.until(lambda: page.one("#banner").is_displayed(), "the banner")
    enough.set()


def killed(page, serve):
    server = serve()
    page.driver.get(server.url)
    page.set_number("temperature", 0)
    page.throttle(3000)
    page.send("count")
    page.until(lambda: len(last_answer(page)) > 20, "the first words")
    server.process.kill()
    page.throttle(None)
    page.until_done()
    cut = last_answer(page)
    assert taught.COUNT.startswith(cut) and ("connection" in page.text(".problem") or cut == taught.COUNT)


ALL = [refused, line_cut]
WITH_A_SERVER = [token, busy, ending, killed]
