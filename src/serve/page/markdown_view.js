import { copyText, icon, make } from "./dom.js";
import { parseBlocks } from "./markdown_blocks.js";
import { parseInline } from "./markdown_inline.js";
import { t } from "./words.js";

function inlineNode(node) {
  if (typeof node === "string") return document.createTextNode(node);
  if (node.type === "code") return make("code", { text: node.text });
  if (node.type === "math") return make("span", { class: "math", text: node.text });
  const children = node.children.map(inlineNode);
  if (node.type !== "link") return make(node.type, {}, children);
  return make("a", { href: node.href, target: "_blank", rel: "noopener noreferrer" }, children);
}

function inline(tag, text, properties = {}) {
  return make(tag, properties, parseInline(text).map(inlineNode));
}

/** Makes a copy button that shows for two seconds whether copying succeeded. */
export function copyButton(label, textOf) {
  const words = make("span", { text: label });
  const button = make("button", { type: "button", class: "small-button" }, icon("copy"), words);
  button.addEventListener("click", async () => {
    const done = await copyText(textOf()).then(() => true, () => false);
    words.textContent = t(done ? "copied" : "copyFailed");
    button.firstChild.replaceWith(icon(done ? "check" : "warning"));
    setTimeout(() => {
      words.textContent = label;
      button.firstChild.replaceWith(icon("copy"));
    }, 2000);
  });
  return button;
}

function codeNode(block) {
  const code = make("code", { text: block.text });
  const head = make("div", { class: "code-head" }, make("span", { text: block.language || t("code") }),
    copyButton(t("copy"), () => code.textContent));
  const label = block.language ? `${t("code")}, ${block.language}` : t("code");
  return make("div", { class: "code" }, head, make("pre", { tabindex: "0", role: "region", "aria-label": label }, code));
}

function listNode(block) {
  const items = block.items.map((item) => {
    const box = item.isTask ? make("input", { type: "checkbox", disabled: true, checked: item.task, "aria-label": t("task") }) : null;
    return make("li", { class: item.isTask ? "task" : null }, box, item.blocks.map(blockNode));
  });
  return block.start === null ? make("ul", {}, items) : make("ol", { start: String(block.start) }, items);
}

function tableNode(block) {
  const cell = (tag) => (text, column) => inline(tag, text, { class: `to-${block.alignments[column]}` });
  const rows = block.rows.map((row) => make("tr", {}, row.map(cell("td"))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, block.head.map(cell("th")))), make("tbody", {}, rows));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": t("table") }, table);
}

function blockNode(block) {
  switch (block.type) {
    case "heading": return inline(`h${Math.min(block.level + 2, 6)}`, block.text, { class: `level-${block.level}` });
    case "code": return codeNode(block);
    case "math": return make("p", { class: "math", text: block.text });
    case "list": return listNode(block);
    case "quote": return make("blockquote", {}, block.blocks.map(blockNode));
    case "table": return tableNode(block);
    case "rule": return make("hr");
    default: return inline("p", block.text);
  }
}

/**
 * Shows a growing text. Blocks with unchanged source keep their nodes, so that a selection, a
 * scrolled table or a focused button survives while the rest is still being written.
 */
export class MarkdownView {
  constructor(name = "") {
    this.node = make("div", { class: `markdown ${name}` });
    this.blocks = [];
  }

  show(text) {
    const blocks = parseBlocks(text);
    let same = 0;
    while (same < blocks.length && same < this.blocks.length && blocks[same].source === this.blocks[same].source) same += 1;
    const [before, after] = [this.blocks[same], blocks[same]];
    if (before?.type === "code" && after?.type === "code" && before.language === after.language && blocks.length === this.blocks.length) {
      this.node.children[same].querySelector("code").textContent = after.text;
      same += 1;
    }
    while (this.node.children.length > same) this.node.lastChild.remove();
    for (const block of blocks.slice(same)) this.node.append(blockNode(block));
    this.blocks = blocks;
  }
}
