// Parses the text inside a Markdown block, in time linear in the text: a stack of open elements,
// and no text is scanned twice.

const kMaxOpen = 32;  // maximum nesting of emphasis and links; further ones are text
const kMaxTarget = 2000;  // maximum length of a link's address, in characters
const kSpecial = /[\\`*_~[\]!<&$\n]|https?:\/\//g;
const kEntities = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" };
const kElements = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del" };

/**
 * Returns an address that is safe to open, otherwise null: only http, https and mailto, no relative
 * address.
 */
export function safeAddress(text) {
  if (!/^(https?:\/\/|mailto:)/i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.open = [{ kind: "root", mark: "", children: [] }];
    this.count = {};  // number of open elements by kind
    this.absent = new Set();  // closing marks that the rest of the text does not contain
  }

  parse() {
    while (this.at < this.text.length) {
      kSpecial.lastIndex = this.at;
      const special = kSpecial.exec(this.text);
      const end = special ? special.index : this.text.length;
      this.put(this.text.slice(this.at, end));
      this.at = end;
      if (special) this.readSpecial(special[0]);
    }
    this.closeDownTo(0);
    return this.open[0].children;
  }

  readSpecial(special) {
    if (special === "\\") return this.readEscape();
    if (special === "`") return this.readCode();
    if (special === "$") return this.readDollars();
    if (special === "[" || special === "!") return this.readBracket();
    if (special === "]") return this.readCloseBracket();
    if (special === "<") return this.readAngle();
    if (special === "&") return this.readEntity();
    if (special.startsWith("http")) return this.readAddress();
    if (special === "\n") return this.take("\n");
    return this.readEmphasis(special);
  }

  put(piece) {
    const children = this.open[this.open.length - 1].children;
    const last = children.length - 1;
    if (typeof piece === "string" && typeof children[last] === "string") children[last] += piece;
    else if (piece !== "") children.push(piece);
  }

  take(text, piece = text) {
    this.at += text.length;
    this.put(piece);
  }

  push(kind, mark) {
    this.open.push({ kind, mark, children: [] });
    this.count[kind] = (this.count[kind] ?? 0) + 1;
  }

  pop() {
    const frame = this.open.pop();
    this.count[frame.kind] -= 1;
    return frame;
  }

  /** Turns elements above `depth` that were never closed into text. */
  closeDownTo(depth) {
    while (this.open.length > depth + 1) {
      const frame = this.pop();
      this.put(frame.mark);
      for (const child of frame.children) this.put(child);
    }
  }

  /**
   * Pops and returns the topmost open element of a kind, or returns null. Elements above it become
   * text.
   */
  raise(kind) {
    if (!this.count[kind]) return null;
    let depth = this.open.length - 1;
    while (this.open[depth].kind !== kind) depth -= 1;
    this.closeDownTo(depth);
    return this.pop();
  }

  find(mark, from) {
    if (this.absent.has(mark)) return -1;
    const found = this.text.indexOf(mark, from);
    if (found < 0) this.absent.add(mark);
    return found;
  }

  readEscape() {
    const next = this.text[this.at + 1] ?? "";
    const close = { "(": "\\)", "[": "\\]" }[next];
    const end = close ? this.find(close, this.at + 2) : -1;
    if (end >= 0) {
      const text = this.text.slice(this.at, end + 2);
      this.take(text, { type: "math", text });
    } else if (/[!-/:-@[-`{-~]/.test(next)) {
      this.take("\\" + next, next);
    } else {
      this.take("\\");
    }
  }

  readCode() {
    const mark = /`+/y;
    mark.lastIndex = this.at;
    const ticks = mark.exec(this.text)[0];
    let end = this.find(ticks, this.at + ticks.length);
    while (end >= 0 && (this.text[end + ticks.length] === "`" || this.text[end - 1] === "`")) {
      while (this.text[end] === "`") end += 1;
      end = this.find(ticks, end);
    }
    if (end < 0) return this.take(ticks);
    const text = this.text.slice(this.at + ticks.length, end);
    this.at = end + ticks.length;
    return this.put({ type: "code", text: /^ .*[^ ].* $/s.test(text) ? text.slice(1, -1) : text });
  }

  /**
   * Mathematics stays text, but its * and _ must not become emphasis. "$5 and $6" is not
   * mathematics.
   */
  readDollars() {
    const mark = this.text.startsWith("$$", this.at) ? "$$" : "$";
    const start = this.at + mark.length;
    const end = this.find(mark, start);
    const inner = end < 0 ? "" : this.text.slice(start, Math.min(end, start + kMaxTarget));
    const after = this.text[end + mark.length] ?? "";
    const good = mark === "$$" || (!/^\s|\s$/.test(inner) && !/[0-9]/.test(after) && !inner.includes("\n"));
    if (inner === "" || end > start + kMaxTarget || !good) return this.take(mark);
    const text = this.text.slice(this.at, end + mark.length);
    return this.take(text, { type: "math", text });
  }

  readBracket() {
    const mark = this.text.startsWith("![", this.at) ? "![" : this.text[this.at];
    if (mark === "!" || this.open.length > kMaxOpen) return this.take(mark);
    this.push("[", mark);
    this.at += mark.length;
  }

  /**
   * A link must have an address. An image becomes a link, because the page loads nothing from other
   * servers.
   */
  readCloseBracket() {
    const frame = this.raise("[");
    if (!frame) return this.take("]");
    const target = /\(\s*<?((?:[^\s()<>\\]|\\.|\([^\s()<>]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
    target.lastIndex = 0;
    const match = target.exec(this.text.slice(this.at + 1, this.at + 1 + kMaxTarget));
    const href = match && safeAddress(match[1]);
    this.at += 1;
    if (href) {
      this.at += match[0].length;
      this.spendBrackets();
      return this.put({ type: "link", href, children: frame.children.length ? frame.children : [match[1]] });
    }
    this.put(frame.mark);
    for (const child of frame.children) this.put(child);
    return this.put("]");
  }

  /** Links cannot be nested: brackets around a link are text. */
  spendBrackets() {
    for (const frame of this.open) {
      if (frame.kind === "[") frame.kind = "spent";
    }
    this.count.spent = (this.count.spent ?? 0) + (this.count["["] ?? 0);
    this.count["["] = 0;
  }

  readAngle() {
    const match = /<(br ?\/?|(?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
    match.lastIndex = this.at;
    const found = match.exec(this.text);
    if (!found) return this.take("<");
    if (/^br/i.test(found[1])) return this.take(found[0], "\n");
    const href = safeAddress(found[1]);
    return this.take(found[0], href ? { type: "link", href, children: [found[1]] } : found[0]);
  }

  readEntity() {
    const entity = Object.keys(kEntities).find((name) => this.text.startsWith(name, this.at));
    return entity ? this.take(entity, kEntities[entity]) : this.take("&");
  }

  /**
   * A bare address ends before a space or a CJK character; punctuation at its end does not belong
   * to it.
   */
  readAddress() {
    const address = /https?:\/\/[^\s<>"'`|\u2018-\u201f\u3000-\u9fff\uff00-\uffef]+/y;
    address.lastIndex = this.at;
    let text = address.exec(this.text)?.[0] ?? "http";
    const opens = text.split("(").length - 1;
    const closes = text.split(")").length - 1;
    const tail = /[.,;:!?*_~\]]/;
    let spare = closes - opens;
    while (tail.test(text[text.length - 1]) || (text.endsWith(")") && spare-- > 0)) text = text.slice(0, -1);
    const href = text.length > 9 && !this.count["["] ? safeAddress(text) : null;
    return this.take(text, href ? { type: "link", href, children: [text] } : text);
  }

  /** Emphasis needs no spaces around Chinese text; _ needs a word boundary; 2*3*4 is a product. */
  readEmphasis(sign) {
    let end = this.at;
    while (this.text[end] === sign) end += 1;
    let left = end - this.at;
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[end] ?? " ";
    const word = /[\p{L}\p{N}]/u;
    let opens = !/\s/.test(after) && !(sign === "_" && word.test(before));
    let closes = !/\s/.test(before) && !(sign === "_" && word.test(after));
    if (left > 6 || (sign === "~" && left !== 2) || (left === 1 && /\d/.test(before) && /\d/.test(after))) {
      opens = closes = false;
    }
    this.at = end;
    while (closes && left > 0) {
      const size = this.closingSize(sign, left);
      if (!size) break;
      const { children } = this.raise(sign + size);
      this.put({ type: kElements[sign + size], children });
      left -= size;
    }
    for (; opens && left > 0 && this.open.length <= kMaxOpen; left -= left % 2 ? 1 : 2) {
      this.push(sign + (left % 2 ? 1 : 2), sign.repeat(left % 2 ? 1 : 2));
    }
    this.put(sign.repeat(left));
  }

  closingSize(sign, left) {
    const topmost = this.open[this.open.length - 1].kind;
    const sizes = left === 1 || (left > 2 && topmost === sign + 1) ? [1] : [2, 1];
    return sizes.find((size) => size <= left && this.count[sign + size]) ?? 0;
  }
}

/**
 * Returns strings and {type: "code" | "math", text}, {type: "em" | "strong" | "del", children},
 * {type: "link", href, children}.
 */
export function parseInline(text) {
  return new InlineParser(text).parse();
}
