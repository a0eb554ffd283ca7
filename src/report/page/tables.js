/* Tables, the goodput bar and the time axis of a run. */

const kActivities = [["queue", "queue"], ["startup", "startup"], ["train", "training"], ["comm_exposed", "exposed communication"],
  ["data_wait", "data wait"], ["checkpoint", "checkpoints"], ["validation", "validation"], ["redone", "repeated steps"], ["down", "down"]];

/** Returns a new element. `content`: texts and elements. */
function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value);
  }
  made.append(...content.filter((part) => part !== null));
  return made;
}

function formatDuration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 100) return `${trimmed(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function formatTime(unix) {
  const date = new Date(unix * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function formatBytes(bytes) {
  if (bytes === null) return "–";
  return bytes < 1000 ? `${bytes} B` : `${formatNumber(bytes)}B`.replace("kB", " kB").replace(/([MGT])B/, " $1B").replace(/(\d)B/, "$1 B");
}

const formatShare = (share) => share === null ? "–" : `${trimmed(Math.round(share * 1000) / 10)} %`;

/** Returns a table. `columns`: [title, class]; a row is a list of texts. */
function table(columns, rows) {
  const head = element("tr", {}, ...columns.map(([title, kind]) => element("th", { class: kind, scope: "col" }, title)));
  const body = rows.map((row) => element("tr", {}, ...row.map((text, i) => element("td", { class: columns[i][1] }, text ?? "–"))));
  return element("div", { class: "table" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== null && value !== "–")
    .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function keys(entries) {
  return element("div", { class: "legend" }, ...entries.map(([colour, text]) =>
    element("span", { class: "key" }, element("span", { class: "swatch", style: { background: `var(${colour})` } }), text)));
}

function goodputBar(wall) {
  const used = kActivities.filter(([name]) => wall[name] > 0);
  const text = used.map(([name, title]) => `${title} ${formatShare(wall[name] / wall.total)}`).join(", ");
  const parts = used.map(([name, title]) => element("div", { title: `${title}: ${formatDuration(wall[name])}`,
    style: { width: `${100 * wall[name] / wall.total}%`, background: `var(--${name})` } }));
  const entries = used.map(([name, title]) =>
    [`--${name}`, `${title}: ${formatDuration(wall[name])} (${formatShare(wall[name] / wall.total)})`]);
  return [element("div", { class: "bar", role: "img", "aria-label": text }, ...parts), keys(entries)];
}

/** The time axis: activities, starts and failures of attempts. */
function timeline(run) {
  const begin = run.begin;
  const total = Math.max(run.wall_s.total, 1e-9);
  const place = (time) => `${Math.min(100, Math.max(0, 100 * (time - begin) / total))}%`;
  const track = element("div", { class: "track" }, ...run.spans.map(([what, from, to, attempt]) =>
    element("div", { title: `${attempt >= 0 ? `attempt ${attempt + 1}: ` : ""}${what}, ${formatDuration(to - from)}`,
      style: { left: place(from), width: `${100 * (to - from) / total}%`, background: `var(--${what})` } })));
  const marks = run.attempts.flatMap((attempt, i) => [
    element("div", { class: "mark", title: `attempt ${i + 1} starts, ${formatTime(attempt.start)}`, style: { left: place(attempt.start) } }),
    attempt.failed ? element("div", { class: "mark failed", title: `attempt ${i + 1} ${attempt.reason}, ${formatTime(attempt.end)}`,
      style: { left: place(attempt.end) } }) : null]);
  const ticks = [0, 0.5, 1].map((share) => element("span", { class: share === 1 ? "tick last" : "tick", style: { left: `${100 * share}%` } },
    share === 0 ? formatTime(begin) : `+${formatDuration(share * total)}`));
  return element("div", { class: "timeline" }, ...ticks, track, ...marks.filter((mark) => mark !== null));
}

function causeText(cause) {
  if (!cause) return "–";
  const where = [cause.rank === null ? "" : `rank ${cause.rank}`, cause.host ? `on ${cause.host}` : ""].filter(Boolean).join(" ");
  return [where, cause.kind, cause.message].filter(Boolean).join(": ");
}

function attemptsTable(run) {
  const columns = [["attempt", "number"], ["job", ""], ["start", "stamp"], ["time", "number"], ["steps", "number"], ["ranks", "number"],
    ["nodes", "text"], ["end", ""], ["exit code", "number"], ["root cause", "text"]];
  return table(columns, run.attempts.map((attempt, i) => [String(i + 1), attempt.job, formatTime(attempt.start),
    formatDuration(attempt.end - attempt.start), `${attempt.from_step} to ${attempt.to_step}`, attempt.ranks || null,
    attempt.nodes.length > 4 ? `${attempt.nodes.slice(0, 3).join(", ")} and ${attempt.nodes.length - 3} more` : attempt.nodes.join(", "),
    attempt.reason, attempt.exit_code, causeText(attempt.root_cause)]));
}

function predictionsTable(run) {
  const difference = (predicted, measured) => predicted && measured !== null ? formatShare(measured / predicted - 1) : "–";
  return table([["value", "text"], ["predicted", "number"], ["measured", "number"], ["difference", "number"]],
    run.predictions.filter(([, predicted, measured]) => predicted || measured)
      .map(([what, predicted, measured]) => [what, formatBytes(predicted), formatBytes(measured), difference(predicted, measured)]));
}

/** The results of the evaluations of a run. */
function reportCard(run) {
  const rows = Object.entries(run.evaluations).flatMap(([name, values]) => Object.entries(values).map(([key, value]) =>
    [name, key, typeof value === "number" ? formatNumber(value) : value]));
  return rows.length === 0 ? [] : [element("h3", {}, "Report card"), table([["evaluation", "text"], ["value", "text"], ["result", "text"]], rows)];
}

/** The mean times of each rank in a step, if the run has ranks.jsonl. */
function rankTimes(run) {
  const most = 64;
  // A time that no rank has is left out. With NCCL, the host does not see how long a rank waits.
  const times = [["compute_s", "compute"], ["data_wait_s", "data wait"], ["other_s", "other"], ["peer_wait_s", "waiting for ranks"],
    ["save_s", "saves"], ["validation_s", "validation"]].filter(([key]) => run.rank_times.some((rank) => rank[key] > 0));
  const rows = run.rank_times.slice(0, most).map((rank) => [String(rank.rank), rank.host,
    ...times.map(([key]) => `${formatNumber(rank[key])} s`), formatBytes(rank.mem_peak_bytes)]);
  return [element("h3", {}, "Mean times of the ranks per step"),
    table([["rank", "number"], ["host", ""], ...times.map(([, title]) => [title, "number"]), ["peak memory", "number"]], rows),
    run.rank_times.length > most ? element("p", { class: "soft" }, `${run.rank_times.length - most} more ranks are in ranks.jsonl.`) : ""];
}

/** The ranks of the newest start, and whether the copies of the parameters are identical. */
function distribution(run) {
  const record = run.distribution;
  if (!record) return [];
  const { shards, copies, identical, hash } = record.parameters;
  const proof = copies === 1 ? `Each rank holds its own shard of the parameters (${shards} in all, hash ${hash}).`
    : `${copies} copies of ${shards === 1 ? "the parameters" : `each of ${shards} shards of the parameters`} are ${identical ? "identical" : "NOT identical"} (hash ${hash}).`;
  const used = ["dp", "tp", "cp", "pp", "ep"].filter((axis) => record.groups[axis] > 1);
  const groups = used.length > 0 ? ` in the groups ${used.map((axis) => `${axis} ${record.groups[axis]}`).join(", ")}` : "";
  const most = 64;
  const rows = record.per_rank.slice(0, most).map((rank) => [String(rank.rank), rank.host, rank.device, String(rank.threads),
    used.map((axis) => `${axis} ${rank.coords[axis]}`).join(", ") || null, rank.weights_hash.slice(0, 12)]);
  return [element("h3", {}, "Distribution"),
    element("p", {}, `The newest start had ${record.ranks} rank${record.ranks === 1 ? "" : "s"} on ${record.nodes} node${record.nodes === 1 ? "" : "s"} (${record.backend})${groups}. ${proof}`),
    table([["rank", "number"], ["host", ""], ["device", ""], ["threads", "number"], ["mesh coordinates", ""], ["hash of the weights", ""]], rows),
    record.per_rank.length > most ? element("p", { class: "soft" }, `${record.per_rank.length - most} more ranks are in distribution.json.`) : ""];
}

/** The generated texts of each prompt, oldest first. Of many steps, some with equal distances are shown. */
function samples(run) {
  const most = 50;
  const prompts = new Map();
  for (const sample of run.samples) {
    if (!prompts.has(sample.sample)) prompts.set(sample.sample, []);
    prompts.get(sample.sample).push(sample);
  }
  const parts = [element("h3", {}, "Generated samples over time")];
  for (const all of prompts.values()) {
    const distance = Math.ceil(all.length / most);
    const shown = all.filter((_, i) => (all.length - 1 - i) % distance === 0);
    parts.push(element("p", { class: "prompt" }, all[all.length - 1].prompt),
      table([["step", "number"], ["text", "text sample"]], shown.map((sample) => [String(sample.step), sample.text])));
    if (distance > 1) parts.push(element("p", { class: "soft" }, `${all.length - shown.length} more steps are in samples.jsonl.`));
  }
  return parts;
}
