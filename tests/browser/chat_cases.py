"""Tests the actions on a chat: write, stream, stop, regenerate, edit, delete, store, export."""
import json
import os

from selenium.webdriver.common.keys import Keys

import taught

SLOW = 3000  # bytes per second of the connection; a part of an answer has some hundreds of bytes


def start(page):
    page.fresh()
    page.set_number("temperature", 0)


def last_answer(page):
    return page.text(".message.assistant:last-child .content")


def type_and_stream(page):
    start(page)
    page.throttle(SLOW)
    page.send("count")
    page.until(page.running, "an answer under way")
    page.until(lambda: len(last_answer(page)) > 20, "the first words")
    early = last_answer(page)
    assert page.running() and taught.COUNT.startswith(early) and len(early) < len(taught.COUNT), early
    page.throttle(None)
    page.until_done()
    assert last_answer(page) == taught.COUNT
    stats = page.text(".message.assistant .stats")
    assert "written" in stats and "tokens/s" in stats, stats


def stop(page):
    start(page)
    page.throttle(SLOW)
    page.send("count")
    page.until(lambda: len(last_answer(page)) > 20, "the first words")
    page.click(page.one("#send"))
    page.until_done()
    page.throttle(None)
    cut = last_answer(page)
    assert taught.COUNT.startswith(cut) and len(cut) < len(taught.COUNT)
    assert "stopped" in page.text(".stats")
    page.ask("short")  # the next question includes the interrupted answer
    page.reload()
    assert len(page.all(".message")) == 4 and page.all(".message.assistant .content")[0].text == cut


def regenerate(page):
    start(page)
    page.ask("short")
    page.set_number("temperature", 3)
    page.set_number("max_tokens", 40)
    answers = set()
    for seed in (1, 2, 1):
        page.set_number("seed", seed)
        page.click(page.button(page.one(".message.assistant"), "Regenerate"))
        page.until_done()
        assert len(page.all(".message")) == 2
        answers.add((seed, last_answer(page)))
    assert len(answers) == 2, f"one answer a seed: {answers}"
    before = last_answer(page)
    page.set_number("seed", 3)
    page.click(page.button(page.one(".message.assistant"), "Regenerate"))
    page.until_done()
    page.click(page.one(".notice .small-button"))  # undo
    assert last_answer(page) == before


def edit(page):
    start(page)
    page.ask("short")
    page.ask("markdown")
    first = page.all(".message.user")[0]
    page.click(page.button(first, "Edit"))
    area = page.one(".edit textarea")
    area.clear()
    area.send_keys("你好", Keys.CONTROL, Keys.ENTER)
    page.until(lambda: len(page.all(".message")) == 2, "the chat from the edited message")
    page.until_done()
    assert last_answer(page) == "你好，我在。"
    page.click(page.button(page.one(".message.assistant"), "Edit"))
    page.one(".edit textarea").send_keys(" **more**", Keys.CONTROL, Keys.ENTER)
    assert last_answer(page) == "你好，我在。 more" and len(page.all(".message")) == 2
    page.click(page.button(page.one(".message.assistant"), "Edit"))
    page.one(".edit textarea").send_keys("lost", Keys.ESCAPE)
    assert last_answer(page) == "你好，我在。 more"


def delete(page):
    start(page)
    page.ask("short")
    page.ask("markdown")
    page.click(page.button(page.all(".message.user")[0], "Delete"))
    page.click(page.button(page.all(".message.assistant")[0], "Delete"))
    assert [node.text.split("\n")[0] for node in page.all(".message .bubble")] == ["markdown"]
    page.click(page.one(".notice .small-button"))  # goes back one more step
    assert len(page.all(".message")) == 3
    page.reload()
    assert len(page.all(".message")) == 3


def several_chats(page):
    start(page)
    page.ask("short")
    page.click(page.one("#new-chat"))
    page.ask("你好")
    page.reload()
    assert page.text("#title") == "你好" and last_answer(page) == "你好，我在。"
    titles = [node.text for node in page.all(".chat-title")]
    assert titles == ["你好", "short"], titles
    page.click(page.all(".chat")[1])
    assert last_answer(page) == "Yes."
    page.one("#find").send_keys("我在")
    assert [node.text for node in page.all(".chat-title")] == ["你好"]
    page.one("#find").clear()
    page.one("#find").send_keys(" ", Keys.BACKSPACE)
    page.click(page.one("li:last-child .chat-buttons button:last-child"))
    assert [node.text for node in page.all(".chat-title")] == ["你好"]
    page.click(page.one(".notice .small-button"))
    assert sorted(node.text for node in page.all(".chat-title")) == ["short", "你好"]


def answers_at_once(page):
    """An answer continues while another chat is open, and a second answer may run at the same
    time."""
    start(page)
    page.throttle(SLOW)
    page.send("count")
    page.until(lambda: len(last_answer(page)) > 5, "the first words")
    page.click(page.one("#new-chat"))
    assert not page.running()
    page.send("markdown")
    page.until(page.running, "the second answer")
    page.throttle(None)
    page.until_done()
    page.click(page.all(".chat")[[node.text for node in page.all(".chat-title")].index("count")])
    page.until_done()
    assert last_answer(page) == taught.COUNT


def left_while_answering(page):
    start(page)
    page.throttle(8 * SLOW)  # the page itself is loaded over the slow connection again
    page.send("count")
    page.until(lambda: len(last_answer(page)) > 20, "the first words")
    early = last_answer(page)
    page.js("location.reload()")
    page.throttle(None)
    page.until(lambda: "interrupted" in page.text(".stats"), "the word that it was interrupted")
    assert not page.running() and last_answer(page).startswith(early) and last_answer(page) != taught.COUNT
    page.click(page.button(page.one(".message.assistant"), "Regenerate"))
    page.until_done()
    assert last_answer(page) == taught.COUNT


def export_import(page, downloads):
    start(page)
    page.ask("markup")
    page.click(page.one("#new-chat"))
    page.ask("你好")
    path = os.path.join(downloads, "trireme-chats.json")
    page.click(page.one("#export-chats"))
    page.until(lambda: os.path.exists(path), "the exported file")
    with open(path, encoding="utf-8") as file:
        chats = json.load(file)["chats"]
    assert [chat["title"] for chat in chats] == ["你好", "markup"] and chats[1]["messages"][1]["content"] == taught.MARKUP
    page.fresh()
    page.one("#import-file").send_keys(path)
    page.until(lambda: len(page.all(".chat")) == 2, "the imported chats")
    assert last_answer(page) == "你好，我在。"
    for name, text in (("hostile.json", '{"chats": [{"id": 5, "title": {}, "settings": {"numbers": {"top_k": "x"}, "tools": 3}, "messages": '
                        '[{"role": "user", "content": "<b>a"}, {"role": "x"}, 7, {"role": "assistant", "content": null, "tool_calls": [3]}]}]}'),
                       ("broken.json", "{"), ("empty.json", "[]")):
        with open(os.path.join(downloads, name), "w", encoding="utf-8") as file:
            file.write(text)
        page.one("#import-file").send_keys(os.path.join(downloads, name))
        page.until_text("#notices", "imported: 1" if name == "hostile.json" else f"{name} holds no chats")
    page.reload()
    assert page.text(".message.user .bubble") == "<b>a"


def tools(page):
    start(page)
    page.click(page.one("#open-settings"))
    area = page.one("#set-tools")
    area.send_keys("[3]")
    assert area.get_attribute("aria-invalid") == "true"
    page.js("arguments[0].value = ''", area)
    area.send_keys(json.dumps([taught.TOOL]))
    assert area.get_attribute("aria-invalid") == "false"
    page.leave_dialog()
    page.ask("weather")
    assert page.text(".call code") == "get_weather" and '"city": "Hangzhou"' in page.text(".call pre")
    page.one(".results textarea").send_keys("sunny")
    page.click(page.one(".results button"))
    page.until(lambda: len(page.all(".message")) == 4, "the answer after the result")
    page.until_done()
    assert last_answer(page) == "It is sunny." and not page.all(".results")
    page.reload()
    assert page.text(".message.tool .bubble") == "sunny"


def thoughts(page):
    start(page)
    page.js("const box = document.getElementById('thinking'); box.value = 'on'; box.dispatchEvent(new Event('change'))")
    page.ask("think")
    folded = page.one(".thoughts")
    assert folded.get_attribute("open") is None and "Thought" in page.text(".thoughts summary")
    assert last_answer(page) == "Two."
    page.one(".thoughts summary").click()
    assert page.text(".thoughts .markdown") == "One and one."


def output_stays_text(page):
    start(page)
    page.ask("markup")
    assert last_answer(page) == taught.MARKUP
    assert not page.all("#messages script, #messages img, #messages b") and "broken" not in page.driver.title
    start(page)
    page.ask("markdown")
    assert page.text(".message:last-child h4") == "Sky" and len(page.all(".message:last-child li")) == 2
    page.click(page.one(".code button"))
    page.until_text(".code button", "Copied")


ALL = [type_and_stream, stop, regenerate, edit, delete, several_chats, answers_at_once, left_while_answering, export_import, tools, thoughts,
       output_stays_text]
