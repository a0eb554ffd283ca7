"""Tests the page's Markdown: cases, growth letter by letter, and the time for texts that are
made to be slow."""
import json
import os

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "markdown_cases.json")

# Returns the content of a view without elements that only serve looks, focus and screen readers.
SHOWN = """
const { MarkdownView } = await import(new URL('page/markdown_view.js', document.baseURI).href);
const outline = (view) => {
  const copy = view.node.cloneNode(true);
  for (const node of copy.querySelectorAll('.code-head')) node.remove();
  for (const node of copy.querySelectorAll('.code, .table')) node.replaceWith(...node.childNodes);
  for (const node of copy.querySelectorAll('*')) {
    for (const name of ['class', 'tabindex', 'role', 'aria-label']) node.removeAttribute(name);
  }
  return copy.innerHTML;
};
const show = (text) => { const view = new MarkdownView(); view.show(text); return outline(view); };
"""

LARGE = 200_000  # letters
SLOW_S = 4.0  # linear work takes far below a second; quadratic work on LARGE takes minutes
HOSTILE = {
    "stars": "*", "stars and letters": "*a ", "closed stars": "**a*", "underscores": "_a_ ", "brackets": "[", "links": "[a](",
    "closed brackets": "[]", "ticks": "`a``b", "dollars": "$a", "maths": "\\(", "maths of lines": "\\[\n", "angles": "<", "addresses": "http://",
    "quotes": ">", "lists": "- ", "numbered": "1. a\n", "deep lists": None, "fences": "```\n", "tables": "|a|\n|-|\n", "wide tables": "|", "entities": "&",
    "heading": "# " + " " * 40 + "a\n", "backslashes": "\\", "tildes": "~~a", "lines": "a\n", "spaces": " ", "tabs": "\t- a\n",
}


def hostile(piece):
    if piece is None:
        return "\n".join("  " * i + "- a" for i in range(600))
    return (piece * (LARGE // len(piece) + 1))[:LARGE]


def cases(page):
    page.fresh()
    with open(CASES, encoding="utf-8") as file:
        table = json.load(file)
    shown = page.later(SHOWN + "return arguments[0].map(show);", [source for _, source, _ in table])
    wrong = [f"{name}: {source!r}\n  shown  {have!r}\n  wanted {want!r}" for (name, source, want), have in zip(table, shown) if have != want]
    assert not wrong and len(table) > 30, "\n".join(wrong)


def growth(page):
    """While a text grows, the view at each letter equals that of the whole text so far. Finished
    blocks keep their nodes."""
    page.fresh()
    text = "# a\n\ntext **bold** `c`\n\n- x\n  - y\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nif a:\n  b\n```\n\n> q\n\n$$\na_1\n$$\n\nend *em"
    failed = page.later(SHOWN + """
      const view = new MarkdownView();
      for (let end = 1; end <= arguments[0].length; ++end) {
        const part = arguments[0].slice(0, end);
        const first = view.node.firstChild;
        view.show(part);
        if (outline(view) !== show(part)) return part;
        if (end > 6 && view.node.firstChild !== first) return 'the first node was made anew at ' + end;
      }
      return '';""", text)
    assert failed == "", failed


def speed(page):
    """No text makes the page hang: the time to show it grows only linearly with its length."""
    page.fresh()
    page.driver.set_script_timeout(120)
    for name, piece in HOSTILE.items():
        spent = page.later(SHOWN + "const start = performance.now(); new MarkdownView().show(arguments[0]); return performance.now() - start;", hostile(piece))
        assert isinstance(spent, (int, float)) and spent < 1000 * SLOW_S, f"{name}: {spent} ms"


ALL = [cases, growth, speed]
