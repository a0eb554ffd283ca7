"""A headless Chromium on the page of a running server. It is driven like by a user: keys,
clicks, visible text."""
import json
import os
import shutil
import time
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WAIT_S = 20
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
             "--disable-component-update", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class Page:
    """The page in its own window. `downloads`: a directory."""

    def __init__(self, url, downloads, language="en-US"):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ARGUMENTS + [f"--lang={language}"]:
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"intl.accept_languages": language, "download.default_directory": downloads})
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.url = url
        self.requests = []
        self.size(1200, 800)

    def close(self):
        self.driver.quit()

    # ---- the window

    def fresh(self):
        """Opens the page like a new user sees it."""
        self.media("light")
        self.throttle(None)
        self.driver.get(self.url)
        self.js("localStorage.clear(); sessionStorage.clear();")
        self.reload()

    def reload(self):
        self.driver.get(self.url)
        self.until(lambda: self.js("return document.getElementById('model').options.length") > 0, "a model in the header")

    def size(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, scheme):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.until(lambda: self.js("return document.getAnimations().length") == 0, "colours at rest")

    def throttle(self, bytes_per_s):
        """Slows the connection down, so that an answer comes in parts that can be watched and
        stopped."""
        self.cdp("Network.enable")
        self.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=bytes_per_s or -1, uploadThroughput=-1)

    def offline(self, cut):
        self.cdp("Network.enable")
        self.cdp("Network.emulateNetworkConditions", offline=cut, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    def cdp(self, command, **values):
        return self.driver.execute_cdp_cmd(command, values)

    def js(self, text, *values):
        return self.driver.execute_script(text, *values)

    def later(self, text, *values):
        """Returns the result of an asynchronous function with this body."""
        return self.driver.execute_async_script(
            f"const done = arguments[arguments.length - 1]; (async function () {{ {text} }}).apply(null, arguments)"
            ".then(done, (error) => done('failed: ' + error.stack));", *values)

    def picture(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.driver.save_screenshot(path)

    def hosts(self):
        """Returns every host that a request of the page went to so far."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return {urlsplit(url).netloc for url in self.requests if urlsplit(url).scheme not in ("data", "blob", "chrome", "about")}

    def complaints(self):
        """Returns the errors and policy violations in the browser's console, without requests
        that a case lets fail."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]]

    # ---- visible content

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        assert found, f"nothing matches {selector}"
        return found[-1]

    def text(self, selector):
        return self.js("const all = document.querySelectorAll(arguments[0]); return all.length ? all[all.length - 1].innerText : ''", selector)

    def until(self, holds, what):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if holds():
                return
            time.sleep(0.05)
        raise AssertionError(f"not within {WAIT_S} s: {what}")

    def until_text(self, selector, words):
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}, which has {self.text(selector)!r}")

    def running(self):
        return "running" in self.one("#send").get_attribute("class").split()

    def until_done(self):
        self.until(lambda: not self.running(), "the end of the answer")

    # ---- user actions

    def press(self, *keys):
        """Sends keys to the element with the focus."""
        chain = webdriver.ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def shift_enter(self):
        webdriver.ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()

    def send(self, text):
        self.one("#input").send_keys(text, Keys.ENTER)

    def ask(self, text):
        """Sends a message and waits for the whole answer."""
        count = len(self.all(".message.assistant"))
        self.send(text)
        self.until(lambda: len(self.all(".message.assistant")) > count, "an answer")
        self.until_done()

    def button(self, message, name):
        """Returns a button of a message by its label."""
        return message.find_element(By.CSS_SELECTOR, f"button[aria-label='{name}']")

    def click(self, element):
        """Clicks an element, even if the pointer would have to be over it first."""
        self.js("arguments[0].click()", element)

    def leave_dialog(self):
        """Presses Escape. The page below takes keys only when the dialog has closed."""
        self.press(Keys.ESCAPE)
        self.until(lambda: not self.all("dialog"), "the end of the dialog")

    def focused(self):
        """Returns the text of a screen reader for the element with the focus."""
        return self.js("const node = document.activeElement; return node.ariaLabel || node.labels?.[0]?.firstElementChild?.textContent || node.labels?.[0]?.textContent || node.innerText || node.id")

    def set_number(self, name, value):
        self.click(self.one("#open-settings"))
        field = self.one(f"#set-{name}")
        field.clear()
        field.send_keys(str(value))
        self.leave_dialog()
