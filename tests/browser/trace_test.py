"""A Chrome trace of `--profile` in a headless Chromium: the performance panel of its developer tools reads the file and draws
the steps and their phases. Debian's Chromium has no chrome://tracing, the other viewer that Chromium had.
Arguments: the programs trireme and trireme-data."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service

from browser import ARGUMENTS

WAIT_S = 60
CLICK_S = 8  # time between two clicks; longer than one frame of a busy machine
PANEL = "devtools://devtools/bundled/devtools_app.html?panel=timeline"
FIRST, LAST = 3, 4
# Records the place of each text that a canvas of the page draws. The panel shortens the names of narrow events in the middle.
RECORD_TEXTS = """
    localStorage.setItem('hide-shortcuts-dialog-for-test', 'true');
    window.drawn = {};
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
      const place = this.canvas.getBoundingClientRect();
      const at = this.getTransform();
      window.drawn[text] = [place.left + (at.a * x + at.e) * place.width / this.canvas.width,
                            place.top + (at.d * y + at.f) * place.height / this.canvas.height];
      return draw.call(this, text, x, y, ...more);
    };"""
FIND_INPUT = """
    const find = (node) => {
      for (const element of node.querySelectorAll('*')) {
        if (element.matches('input[type=file]')) return element;
        const inside = element.shadowRoot && find(element.shadowRoot);
        if (inside) return inside;
      }
      return null;
    };
    return find(document);"""
COUNT_EVENTS = """
    const done = arguments[0];
    import('devtools://devtools/bundled/panels/timeline/timeline.js').then((timeline) =>
      done(timeline.TimelinePanel.TimelinePanel.instance().getTraceEngineRawTraceEventsForLayoutTests().length), (error) => done(error.message));"""


class Viewer:
    """The performance panel in its own window."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ARGUMENTS + ["--window-size=2400,1000"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD_TEXTS})
        self.driver.get(PANEL)

    def until(self, value_of, what):
        """Returns the first value that is true."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if value := value_of():
                return value
            time.sleep(0.1)
        raise AssertionError(f"not within {WAIT_S} s: {what}; drawn: {sorted(self.texts())}")

    def texts(self):
        """Returns the place of each text in the charts."""
        return self.driver.execute_script("return window.drawn")

    def load(self, path):
        self.until(lambda: self.driver.execute_script(FIND_INPUT), "an input for a file").send_keys(path)

    def drawn(self, start):
        return [text for text in self.texts() if text.startswith(start)]

    def open_group(self, start, shows):
        """Clicks the header of a process or a thread until the header of a thread or an event appears. A click before the page has its
        final layout misses the header."""
        name = self.until(lambda: self.drawn(start), f"the group {start}")[0]
        clicked_at = 0

        def is_open():
            nonlocal clicked_at
            if not self.drawn(shows) and time.monotonic() > clicked_at + CLICK_S:
                x, y = self.texts()[name]
                chain = ActionChains(self.driver)
                chain.w3c_actions.pointer_action.move_to_location(int(x) + 4, int(y) - 3)
                chain.w3c_actions.pointer_action.click()
                chain.perform()
                clicked_at = time.monotonic()
            return self.drawn(shows)

        self.until(is_open, shows)

    def num_events(self):
        return self.driver.execute_async_script(COUNT_EVENTS)

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, name):
        """Writes a picture to the directory TRIREME_TEST_PICTURES, if it is set."""
        if "TRIREME_TEST_PICTURES" in os.environ:
            self.driver.save_screenshot(os.path.join(os.environ["TRIREME_TEST_PICTURES"], f"{name}.png"))


def profiled_run(trireme, data, folder):
    """Returns the trace of a short run."""
    def call(*command):
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    call(data, "synth", "--output", f"{folder}/corpus.jsonl", "--documents", 100, "--seed", 1)
    call(data, "tokenizer", "train", "--input", f"{folder}/corpus.jsonl", "--vocab-size", 300, "--output", f"{folder}/tokenizer")
    call(data, "pack", "--kind", "pretrain", "--tokenizer", f"{folder}/tokenizer", "--input", f"{folder}/corpus.jsonl", "--seq-len", 64,
         "--output", f"{folder}/set")
    call(trireme, "pretrain", "--data", f"{folder}/set", "--run", f"{folder}/run", "--model.preset", "tiny", "--train.device", "cpu",
         "--train.seq_len", 64, "--train.micro_batch", 1, "--train.global_batch", 2, "--train.steps", LAST + 1, "--checkpoint.every", 0,
         "--profile", f"steps={FIRST}:{LAST},ranks=0")
    return f"{folder}/run/profile/steps-{FIRST}-{LAST}/rank-00000.trace.json"


def main():
    viewer = Viewer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = profiled_run(sys.argv[1], sys.argv[2], folder)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            thread = next(event["tid"] for event in events if event["name"] == f"step {FIRST}")
            viewer.load(path)
            viewer.open_group("trireme (", f"thread {thread} ")
            viewer.open_group(f"thread {thread} ", f"step {FIRST}")
            # Events of operations can be too narrow for a name; num_events() counts them.
            for start in [f"step {step}" for step in range(FIRST, LAST + 1)] + ["forward", "backward"]:
                viewer.until(lambda: viewer.drawn(start), f"an event {start}")
            viewer.picture("trace")
            assert viewer.num_events() == len(events), (viewer.num_events(), len(events))
            assert viewer.errors() == [], viewer.errors()
            print(f"{len(events)} events, {os.path.getsize(path) / 1e6:.1f} MB, {len(viewer.texts())} different texts drawn")
    finally:
        viewer.driver.quit()


main()
