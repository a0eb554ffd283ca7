"""Tests everything around the chat: languages, input methods, narrow screens, keyboard-only use,
labels, colours, and that no request leaves the host."""
import json

from selenium.webdriver.common.keys import Keys

from chat_cases import last_answer, start

LABELLED = """
const unnamed = [];
for (const node of document.querySelectorAll('button, input, select, textarea, summary, [role=region], dialog, nav, section#messages, article')) {
  if (node.closest('[hidden]') || node.type === 'file') continue;
  const by = node.getAttribute('aria-labelledby');
  const name = node.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent) || [...(node.labels ?? [])].map((one) => one.textContent).join('')
    || (['BUTTON', 'SUMMARY'].includes(node.tagName) ? node.textContent : '');
  if (!name.trim()) unnamed.push(node.outerHTML.slice(0, 120));
}
return unnamed;"""

# Returns text with too little contrast to its background (WCAG 2: 4.5, and 3 for large text).
CONTRAST = """
const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (colour) => {
  paint.clearRect(0, 0, 1, 1);
  paint.fillStyle = colour;
  paint.fillRect(0, 0, 1, 1);
  return [...paint.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = rgba(getComputedStyle(node).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
};
const weak = [];
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest('.hidden-text, .skip, noscript, :disabled')) continue;
  const style = getComputedStyle(node);
  const [one, other] = [light(rgba(style.color)), light(ground(node))];
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) weak.push(`${ratio.toFixed(2)} ${node.outerHTML.slice(0, 90)}`);
}
return weak;"""

TOO_WIDE = """
const wide = [...document.querySelectorAll('body *')].filter((node) => !node.closest('#side, .hidden-text, pre, .table') &&
  node.getBoundingClientRect().right > innerWidth + 0.5).map((node) => node.outerHTML.slice(0, 90));
return document.documentElement.scrollWidth > innerWidth ? ['the page itself', ...wide] : wide;"""


def assert_readable(page):
    weak = page.js(CONTRAST)
    assert weak == [], weak


def first_visit(page):
    page.fresh()
    assert page.text(".welcome h2") == "What shall we talk about?" and len(page.all(".suggestions button")) == 4
    assert page.text("#no-chats").startswith("No chats yet") and not page.one("#banner").is_displayed()
    assert page.focused() == "Write a message" and not page.one("#send").is_enabled()
    page.click(page.all(".suggestions button")[0])
    page.until(lambda: len(page.all(".message")) == 2, "an answer to the suggestion")
    page.until_done()
    assert page.text("#title") == "Explain why the sky is blue."


def languages(page):
    page.fresh()
    same = page.later("""
      const { kLanguages } = await import(new URL('page/words.js', document.baseURI).href);
      const places = (words) => JSON.stringify(Object.entries(words).map(([name, text]) => [name, text.match(/\\{\\w+\\}/g)?.sort() ?? []]).sort());
      return Object.values(kLanguages).every((words) => places(words) === places(kLanguages.en));""")
    assert same is True, f"both languages have the same names, with the same places: {same}"
    used = page.later("""
      const { kLanguages } = await import(new URL('page/words.js', document.baseURI).href);
      const texts = await Promise.all(performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.endsWith('.js'))
        .map(async (name) => (await fetch(name)).text()));
      const said = [...texts.join('').matchAll(/\\bt\\("(\\w+)"/g)].map((match) => match[1]);
      return said.filter((name) => !(name in kLanguages.en)).concat(said.length > 40 ? [] : ['too few found']);""")
    assert used == [], used
    page.js("const box = document.getElementById('language'); box.value = 'zh'; box.dispatchEvent(new Event('change'))")
    assert page.text(".welcome h2") == "想聊点什么？" and page.js("return document.documentElement.lang") == "zh-CN"
    assert page.one("#input").get_attribute("placeholder") == "输入消息"
    page.reload()
    assert page.text(".welcome h2") == "想聊点什么？"


def chinese_browser(page):
    page.fresh()
    assert page.text(".welcome h2") == "想聊点什么？" and page.text("#new-chat") == "新对话"


def input_method(page):
    """During composition Enter chooses a word; it sends only afterwards."""
    start(page)
    page.one("#input").click()
    page.cdp("Input.imeSetComposition", text="nihao", selectionStart=5, selectionEnd=5)
    for kind in ("rawKeyDown", "keyUp"):
        page.cdp("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=229)
    assert not page.all(".message") and page.one("#input").get_attribute("value") == "nihao"
    for kind in ("rawKeyDown", "keyUp"):  # like an input method that does not report key code 229
        page.cdp("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)
    assert not page.all(".message"), "Enter was taken from the composition"
    page.cdp("Input.insertText", text="你好")
    page.press(Keys.ENTER)
    page.until(lambda: len(page.all(".message")) == 2, "the message")
    page.until_done()
    assert page.text(".message.user .bubble") == "你好" and last_answer(page) == "你好，我在。"


def keyboard_alone(page):
    start(page)
    page.press("two lines")
    page.shift_enter()
    page.press("of text", Keys.ENTER)
    page.until(lambda: len(page.all(".message")) == 2, "an answer")
    page.until_done()
    assert page.text(".message.user .bubble") == "two lines\nof text" and last_answer(page) == "Two lines."
    page.press(Keys.ARROW_UP)
    assert page.focused() == "Edit"
    page.press(Keys.ESCAPE)
    page.press("/")
    assert page.focused() == "Write a message"
    # The model has learned each of these as a first message.
    page.js("document.getElementById('new-chat').focus()")
    page.press(Keys.ENTER)
    page.until(lambda: page.focused() == "Write a message", "the focus in the message field")
    page.throttle(3000)
    page.press("count", Keys.ENTER)
    page.until(lambda: len(last_answer(page)) > 20, "the first words")
    page.press(Keys.ESCAPE)
    page.until_done()
    page.throttle(None)
    page.until(lambda: "stopped" in page.text(".stats"), "the word that it was stopped")
    assert page.focused() == "Write a message"
    reached = tab_through(page)
    wanted = ["Skip to the message field", "New chat", "Find in chats", "Rename: two lines", "Delete: two lines", "Export all", "Import", "Theme",
              "Language", "Settings", "Copy", "Regenerate", "Edit", "Delete", "Write a message", "Thinking"]
    missing = [name for name in wanted if name not in reached]
    assert not missing, f"Tab does not reach {missing}, only {reached}"
    page.js("document.getElementById('open-settings').focus()")
    page.press(Keys.ENTER)
    page.until(lambda: page.all("dialog[open]"), "the settings")
    inside = [page.js("return document.activeElement.closest('dialog') !== null || document.activeElement === document.body") for _ in range(40) if page.press(Keys.TAB) is None]
    assert all(inside), "the focus left the dialog"
    page.leave_dialog()
    assert page.focused() == "Settings"


def tab_through(page):
    page.js("document.activeElement.blur(); window.getSelection().removeAllRanges(); document.body.focus()")
    reached = []
    for _ in range(60):
        page.press(Keys.TAB)
        reached.append(page.focused().strip())
    return reached


def screen_reader(page):
    start(page)
    page.ask("markdown")
    page.until_text("#live", "Answer: ")
    assert page.js("return document.getElementById('live').textContent").startswith("Answer: ## Sky")
    assert page.one(".message.assistant").get_attribute("aria-busy") == "false"
    assert page.js(LABELLED) == []
    page.click(page.one("#open-settings"))
    assert page.js(LABELLED) == []
    names = [node["name"]["value"] for node in page.cdp("Accessibility.getFullAXTree")["nodes"] if node.get("role", {}).get("value") == "dialog"]
    assert names == ["Settings"], names
    page.leave_dialog()


def narrow(page):
    page.size(360, 640)
    try:
        start(page)
        page.ask("markup")
        page.ask("markdown")
        assert page.js(TOO_WIDE) == []
        assert not page.one("#side").is_displayed()
        page.one("#show-side").click()
        assert page.one("#side").is_displayed() and page.focused() == "New chat"
        page.press(Keys.ESCAPE)
        assert not page.one("#side").is_displayed() and page.focused() == "Show chats"
        page.one("#open-settings").click()
        assert page.js(TOO_WIDE) == []
        page.leave_dialog()
        for selector in ("#send", "#open-settings", "#show-side"):
            box = page.one(selector).rect
            assert box["width"] >= 36 and box["height"] >= 36, f"{selector} is too small for a finger: {box}"
    finally:
        page.size(1200, 800)


def colours(page):
    start(page)
    page.ask("markdown")
    ground = lambda: page.js("return getComputedStyle(document.body).backgroundColor")
    light = ground()
    assert_readable(page)
    page.media("dark")
    assert ground() != light
    assert_readable(page)
    page.js("const box = document.getElementById('theme'); box.value = 'light'; box.dispatchEvent(new Event('change'))")
    assert ground() == light
    page.reload()
    assert ground() == light
    page.media("light")


def settings_are_sent(page):
    start(page)
    page.set_number("max_tokens", 3)
    page.set_number("top_p", 0.5)
    page.set_number("top_k", -1)  # invalid value: stays unset
    page.click(page.one("#open-settings"))
    page.one("#set-system").send_keys("Be short.")
    page.leave_dialog()
    page.ask("count")
    assert "cut at the limit" in page.text(".stats") and "3 written" in page.text(".stats")
    body = page.later("""
      const { requestOf } = await import(new URL('page/talk.js', document.baseURI).href);
      const chat = Object.keys(localStorage).filter((key) => key.startsWith('trireme.chat.')).map((key) => JSON.parse(localStorage[key]))[0];
      return requestOf(chat, [{ id: 'm' }]);""")
    assert (body["max_tokens"], body["top_p"], body["temperature"]) == (3, 0.5, 0) and "top_k" not in body, json.dumps(body)
    assert body["messages"][0] == {"role": "system", "content": "Be short."}


def nothing_leaves(page):
    """Runs after all other cases in this window: no request went elsewhere, and the policy was
    never violated."""
    hosts = page.hosts()
    assert hosts == {page.url.split("/")[2]}, hosts
    headers = page.later("const reply = await fetch('.'); return Object.fromEntries(reply.headers);")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy, policy
    assert headers["x-content-type-options"] == "nosniff"
    complaints = page.complaints()
    assert not complaints, "\n".join(complaints)


ALL = [first_visit, languages, input_method, keyboard_alone, screen_reader, narrow, colours, settings_are_sent]
