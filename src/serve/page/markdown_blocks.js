// Parses Markdown into blocks, in time linear in the text. Raw HTML is treated as text.

const kMaxDepth = 12;  // maximum nesting of lists and quotes; deeper ones are text
const kMaxMathLines = 100;

function indentOf(line) {
  let columns = 0;
  for (const letter of line) {
    if (letter === " ") columns += 1;
    else if (letter === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

function dedent(line, columns) {
  let at = 0;
  let done = 0;
  for (; at < line.length && done < columns && (line[at] === " " || line[at] === "\t"); ++at) {
    done += line[at] === " " ? 1 : 4 - (done % 4);
  }
  return " ".repeat(Math.max(0, done - columns)) + line.slice(at);
}

const isBlank = (line) => line.trim() === "";

function fenceOf(line) {
  const match = /^(`{3,}|~{3,})(.*)$/.exec(line.trim());
  return match && !(match[1][0] === "`" && match[2].includes("`")) ? { mark: match[1], language: match[2].trim().split(/\s/)[0] } : null;
}

function isRule(line) {
  const marks = line.replace(/[ \t]/g, "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

/**
 * Returns {indent, content: column of the item's text, kind: "-", "*", "+", "." or ")", number,
 * rest}, or null.
 */
function markerOf(line) {
  const text = line.trimStart();
  const match = /^([-*+]|(\d{1,9})([.)]))(?=[ \t]|$)/.exec(text);
  if (!match || isRule(line)) return null;
  const indent = indentOf(line);
  const after = text.slice(match[1].length);
  const spaces = isBlank(after) ? 1 : Math.min(indentOf(after), 4);
  return { indent, content: indent + match[1].length + spaces, kind: match[3] ?? match[1], number: match[2], rest: dedent(after, spaces) };
}

function cellsOf(line) {
  const cells = [""];
  const text = line.trim();
  for (let at = 0; at < text.length; ++at) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cells[cells.length - 1] += "|";
      at += 1;
    } else if (text[at] === "|") {
      cells.push("");
    } else {
      cells[cells.length - 1] += text[at];
    }
  }
  if (cells[0].trim() === "") cells.shift();
  if (cells.length && cells[cells.length - 1].trim() === "") cells.pop();
  return cells.map((cell) => cell.trim());
}

/**
 * Returns the column alignments if a table starts at this line, otherwise null. The second line of
 * a table sets the alignments and must have as many cells as the first.
 */
function alignmentsAt(lines, at) {
  const line = lines[at + 1];
  if (!lines[at].includes("|") || !line?.includes("-") || !/^[-:| \t]+$/.test(line)) return null;
  const cells = cellsOf(line);
  if (cells.length !== cellsOf(lines[at]).length || !cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
}

function headingOf(line) {
  const match = /^(#{1,6})(?=[ \t]|$)/.exec(line.trimStart());
  if (!match) return null;
  const text = line.trim().slice(match[1].length).trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end -= 1;
  const closed = end === 0 || text[end - 1] === " ";
  return { type: "heading", level: match[1].length, text: closed ? text.slice(0, end).trim() : text };
}

const isMath = (line) => /^(\$\$|\\\[)/.test(line.trimStart());

function interrupts(line) {
  const marker = markerOf(line);
  if (marker) return marker.rest !== "" && (marker.number === undefined || marker.number === "1");
  return fenceOf(line) || headingOf(line) || isRule(line) || isMath(line) || line.trimStart().startsWith(">");
}

// Each reader takes lines from `at` and returns [block, index of the next line], or null if no such
// block starts there.
const kReaders = [readFence, readMath, readHeading, readRule, readQuote, readList, readTable];

function readFence(lines, at) {
  const fence = fenceOf(lines[at]);
  if (!fence) return null;
  const indent = indentOf(lines[at]);
  let end = at + 1;
  const closes = (line) => line.trim().startsWith(fence.mark) && line.trim() === fence.mark[0].repeat(line.trim().length);
  while (end < lines.length && !closes(lines[end])) end += 1;
  const text = lines.slice(at + 1, end).map((line) => dedent(line, indent)).join("\n");
  return [{ type: "code", language: fence.language, text }, end + 1];
}

function readMath(lines, at) {
  if (!isMath(lines[at])) return null;
  const close = lines[at].trimStart().startsWith("$$") ? "$$" : "\\]";
  let end = at;
  let line = lines[at].trimStart().slice(2);
  while (!line.includes(close)) {
    end += 1;
    if (end >= lines.length || end > at + kMaxMathLines || isBlank(lines[end])) return null;
    line = lines[end];
  }
  if (!isBlank(line.slice(line.indexOf(close) + 2))) return null;
  return [{ type: "math", text: lines.slice(at, end + 1).join("\n").trim() }, end + 1];
}

function readHeading(lines, at) {
  const heading = headingOf(lines[at]);
  return heading && [heading, at + 1];
}

function readRule(lines, at) {
  return isRule(lines[at]) ? [{ type: "rule" }, at + 1] : null;
}

function readQuote(lines, at, depth) {
  if (!lines[at].trimStart().startsWith(">")) return null;
  const inner = [];
  let end = at;
  for (; end < lines.length && !isBlank(lines[end]); ++end) {
    const text = lines[end].trimStart();
    if (text.startsWith(">")) inner.push(text.slice(text[1] === " " ? 2 : 1));
    else if (interrupts(lines[end])) break;
    else inner.push(lines[end]);
  }
  return [{ type: "quote", blocks: parseLines(inner, depth + 1) }, end];
}

/**
 * Reads the lines of an item: lines indented more than its marker, and lines that continue its
 * paragraph.
 */
function readItem(lines, at, marker) {
  const own = [marker.rest];
  let end = at + 1;
  for (; end < lines.length; ++end) {
    const indent = indentOf(lines[end]);
    if (isBlank(lines[end])) own.push("");
    else if (indent >= marker.indent + 2) own.push(dedent(lines[end], Math.min(indent, marker.content)));
    else if (own[own.length - 1] === "" || markerOf(lines[end]) || interrupts(lines[end])) break;
    else own.push(lines[end]);
  }
  return [own, end];
}

function readList(lines, at, depth) {
  const first = markerOf(lines[at]);
  if (!first) return null;
  const list = { type: "list", start: first.number === undefined ? null : Number(first.number), items: [] };
  for (let marker = first; marker && marker.kind === first.kind;) {
    const [own, end] = readItem(lines, at, marker);
    const task = /^\[([ xX])\] /.exec(own[0]);
    if (task) own[0] = own[0].slice(4);
    list.items.push({ task: task && task[1] !== " ", isTask: task !== null, blocks: parseLines(own, depth + 1) });
    at = end;
    marker = at < lines.length ? markerOf(lines[at]) : null;
  }
  return [list, at];
}

function readTable(lines, at) {
  const alignments = alignmentsAt(lines, at);
  if (!alignments) return null;
  const head = cellsOf(lines[at]);
  const rows = [];
  let end = at + 2;
  for (; end < lines.length && !isBlank(lines[end]) && lines[end].includes("|"); ++end) {
    rows.push(cellsOf(lines[end]).slice(0, head.length));
  }
  return [{ type: "table", alignments, head, rows }, end];
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end]) && !alignmentsAt(lines, end)) end += 1;
  return [{ type: "paragraph", text: lines.slice(at, end).join("\n").trimEnd() }, end];
}

function parseLines(lines, depth) {
  if (depth > kMaxDepth) return [{ type: "paragraph", text: lines.join("\n") }];
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    let found = null;
    for (const read of kReaders) found ??= read(lines, at, depth);
    const [block, end] = found ?? readParagraph(lines, at);
    blocks.push({ ...block, source: depth ? "" : lines.slice(at, end).join("\n") });
    at = end;
  }
  return blocks;
}

/**
 * Returns the blocks of a text: heading {level, text}, paragraph {text}, code {language, text},
 * math {text}, list {start, items}, quote {blocks}, table {alignments, head, rows}, rule. `source`
 * holds the lines of an outermost block, to detect unchanged blocks.
 */
export function parseBlocks(text) {
  return parseLines(text.replaceAll("\r\n", "\n").split("\n"), 0);
}
