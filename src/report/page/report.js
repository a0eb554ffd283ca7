/* Fills the page with the data of the runs. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const runColour = (i) => `--run${i % 6}`;

function decode(text) {
  const bytes = atob(text);
  const buffer = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; ++i) buffer[i] = bytes.charCodeAt(i);
  return new Float32Array(buffer.buffer);
}

/** Returns the steps and values of a run; releases the encoded text. */
function seriesOf(run) {
  const encoded = run.series;
  const x = new Float64Array(encoded.count);
  if (encoded.step) x.set(decode(encoded.step));
  else for (let i = 0; i < x.length; ++i) x[i] = encoded.first + i * encoded.every;
  const series = { x };
  for (const name of ["loss", "tokens_per_s", "grad_norm", "lr"]) series[name] = decode(encoded[name]);
  for (const name of Object.keys(encoded.task)) series[name] = decode(encoded.task[name]);
  run.series = null;
  return series;
}

function summaries() {
  data.runs.forEach((run, i) => {
    byId("summaries").append(element("div", { class: "card" },
      element("p", {}, element("span", { class: "swatch", style: { background: `var(${runColour(i)})` } }), ` ${run.summary}`)));
  });
}

function commonCharts(range) {
  const all = data.runs.map(seriesOf);
  for (const series of all) range.cover(series.x);
  const grid = element("div", { class: "grid" });
  byId("charts").append(grid);
  const named = (i, text) => data.runs.length > 1 ? `${data.runs[i].run} ${text}` : text;
  const linesOf = (name, text) => all.map((series, i) =>
    ({ name: named(i, text), run: i, colour: runColour(i), x: series.x, y: series[name], smooths: true })).filter((line) => line.y);
  const validationsOf = (hasReward) => data.runs.map((run, i) => ({ hasReward: run.valid_reward !== null, name: named(i, "validation"), run: i, points: true, dashed: true,
    colour: data.runs.length > 1 ? runColour(i) : "--run1", x: Float64Array.from(run.validations, (point) => point[0]),
    y: Float32Array.from(run.validations, (point) => point[1]) })).filter((line) => line.x.length > 0 && line.hasReward === hasReward);
  const made = [new Chart(grid, range, { title: "Training loss by step", lines: linesOf("loss", "loss") })];
  const titles = new Map(data.runs.flatMap((run) => Object.entries(run.task_metrics).map(([name, metric]) => [name, metric.title])));
  for (const [name, title] of titles)
    made.push(new Chart(grid, range, { title: `${title} by step`, lines: linesOf(name, title), canLog: false }));
  const losses = validationsOf(false);
  if (losses.length > 0) made.push(new Chart(grid, range, { title: "Validation loss by step", lines: losses }));
  const rewards = validationsOf(true);
  if (rewards.length > 0) made.push(new Chart(grid, range, { title: "Validation reward by step", lines: rewards, canLog: false }));
  made.push(new Chart(grid, range, { title: "Throughput (tokens/s) by step", lines: linesOf("tokens_per_s", "tokens/s") }));
  made.push(new Chart(grid, range, { title: "Gradient norm by step", lines: linesOf("grad_norm", "gradient norm") }));
  made.push(new Chart(grid, range, { title: "Learning rate by step", lines: linesOf("lr", "learning rate") }));
  return made;
}

const kParts = [["train", "training"], ["comm_exposed", "exposed communication"], ["data_wait", "data wait"],
  ["checkpoint", "checkpoints"], ["validation", "validation"]];

function partsChart(run, parent, range) {
  const x = Float64Array.from(run.parts.step);
  const lines = kParts.map(([name, title]) => ({ name: title, colour: `--${name}`, x, y: Float32Array.from(run.parts[name]) }))
    .filter((line, i) => i === 0 || line.y.some((value) => value > 0));
  new Chart(parent, range, { title: "Parts of a step in seconds (mean of the ranks)", lines, stacked: true, canLog: false });
  parent.append(keys(lines.map((line) => [line.colour, line.name])));
}

const kNorms = [["grad_norm", "Gradient norm"], ["update_norm", "Update norm"], ["weight_norm", "Weight norm"]];

/** Adds a chart of each norm by layer. Six colours repeat, and the pointer shows the names with their values. */
function layerCharts(run, parent, range) {
  const x = Float64Array.from(run.layers.step);
  for (const [norm, title] of kNorms) {
    const lines = [];
    run.layers.names.forEach((name, i) => {
      if (name.startsWith(`${norm}/`))
        lines.push({ name: name.slice(norm.length + 1), colour: runColour(lines.length), x, y: decode(run.layers.values[i]) });
    });
    new Chart(parent, range, { title: `${title} of each layer by step`, lines });
  }
}

function runSection(run, range) {
  const section = element("section", {}, element("h2", {}, run.run));
  byId("runs").append(section);
  section.append(facts([["state", run.state], ["ranks", formatNumber(run.ranks)], ["parameters", formatNumber(run.params)],
    ["steps", formatNumber(run.steps)], ["tokens", formatNumber(run.tokens)], ["first loss", formatNumber(run.loss_first)],
    ["last loss", formatNumber(run.loss_last)], ["validation loss", run.valid_reward === null ? formatNumber(run.valid_loss) : "–"],
    ["validation reward", formatNumber(run.valid_reward)], ...Object.values(run.task_metrics).map((metric) => [`${metric.title}, last`, formatNumber(metric.last)]),
    ["tokens/s", formatNumber(run.tokens_per_s)], ["MFU", formatShare(run.mfu)], ["MFU, predicted", formatShare(run.mfu_predicted)], ["device hours", formatNumber(run.device_hours)],
    ["energy", run.energy_j === null ? "–" : `${formatNumber(run.energy_j)}J`], ["tokens per joule", formatNumber(run.tokens_per_j)], ["goodput", formatShare(run.goodput)],
    ["repeated steps", formatNumber(run.redone_steps)], ["speed-up", formatNumber(run.speedup)], ["efficiency", formatShare(run.efficiency)]]));
  section.append(...reportCard(run));
  if (run.notes.length > 0) section.append(element("div", { class: "card" }, ...run.notes.map((note) => element("p", {}, note))));
  if (run.wall_s && run.wall_s.total > 0) {
    section.append(element("h3", {}, `Goodput: where ${formatDuration(run.wall_s.total)} went`), ...goodputBar(run.wall_s));
    section.append(element("h3", {}, "Attempts and failures"), timeline(run), attemptsTable(run));
  }
  if (run.parts.step.length > 0) {
    const grid = element("div");
    section.append(grid);
    partsChart(run, grid, range);
  }
  if (run.layers.step.length > 0) {
    const grid = element("div", { class: "grid" });
    section.append(grid);
    layerCharts(run, grid, range);
  }
  if (run.samples.length > 0) section.append(...samples(run));
  section.append(...distribution(run));
  if (run.rank_times.length > 0) section.append(...rankTimes(run));
  if (run.slow_ranks.length > 0)
    section.append(element("h3", {}, "Slow ranks"), table([["rank", "number"], ["host", ""], ["extra time of a step", "number"], ["phase", ""]],
      run.slow_ranks.map((slow) => [String(slow.rank), slow.host, formatShare(slow.excess), slow.phase])));
  if (run.predictions.length > 0)
    section.append(element("h3", {}, "Predicted and measured"), predictionsTable(run));
}

function comparison() {
  if (data.runs.length < 2) return;
  const columns = [["", "text"], ...data.runs.map((run) => [run.run, "text"])];
  byId("comparison").append(element("h2", {}, "Configuration differences"),
    data.differences.length === 0 ? element("p", {}, "The configurations of the runs are equal.")
      : table(columns, data.differences.map(([key, values]) => [key, ...values])));
}

function legend(charts) {
  if (data.runs.length < 2) return;
  data.runs.forEach((run, i) => {
    const box = element("input", { type: "checkbox" });
    box.checked = true;
    box.addEventListener("change", () => {
      for (const chart of charts) {
        for (const line of chart.lines) if (line.run === i) line.shown = box.checked;
        chart.later();
      }
    });
    byId("legend").append(element("label", {}, box, element("span", { class: "swatch", style: { background: `var(${runColour(i)})` } }), run.run));
  });
}

function controls(charts, range) {
  const redraw = () => { for (const chart of range.charts) chart.draw(); };
  byId("smoothing").addEventListener("input", (event) => { for (const chart of charts) chart.setSmoothing(Number(event.target.value)); });
  byId("log").addEventListener("change", (event) => { for (const chart of charts) { chart.log = event.target.checked; chart.later(); } });
  byId("reset").addEventListener("click", () => range.showAll());
  byId("theme").addEventListener("change", (event) => { document.documentElement.dataset.theme = event.target.value; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; redraw(); });
  addEventListener("afterprint", () => { document.documentElement.dataset.theme = byId("theme").value; redraw(); });
}

byId("made").textContent = `made ${formatTime(data.time)}`;
summaries();
const range = new SharedRange();
const charts = commonCharts(range);
for (const run of data.runs) runSection(run, range);
comparison();
legend(charts);
controls(charts, range);
range.redraw();
