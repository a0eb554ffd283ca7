/* Charts on a canvas that share one range of steps. A column of pixels shows the least and the
   greatest value of its points, so that no spike is lost at any zoom. */

const kBlock = 64;  // points of one entry in the table of extremes
const kLabelHeight = 14;  // pixels of a label of an axis, with its distance to the next one

/** Returns the colour of a CSS variable in the current colour scheme. */
const colourOf = (() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  return (name) => {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
})();

/** The values of a line, with the extremes of each block of points. */
class Values {
  constructor(y) {
    this.y = y;
    const blocks = Math.ceil(y.length / kBlock);
    this.low = new Float32Array(blocks).fill(Infinity);
    this.high = new Float32Array(blocks).fill(-Infinity);
    for (let i = 0; i < y.length; ++i) {
      const block = (i / kBlock) | 0;
      if (y[i] < this.low[block]) this.low[block] = y[i];
      if (y[i] > this.high[block]) this.high[block] = y[i];
    }
  }

  /** Calls visit(index, low, high) for single points, or for whole blocks if points are dense. */
  scan(from, to, dense, visit) {
    const y = this.y;
    let i = from;
    while (i < to) {
      if (dense && i % kBlock === 0 && i + kBlock <= to) {
        const block = i / kBlock;
        if (this.low[block] <= this.high[block]) visit(i, this.low[block], this.high[block]);
        i += kBlock;
      } else {
        if (y[i] === y[i]) visit(i, y[i], y[i]);
        ++i;
      }
    }
  }
}

/** The range of steps that all charts show. */
class SharedRange {
  constructor() {
    this.whole = [0, 1];
    this.now = [0, 1];
    this.charts = [];
  }

  cover(x) {
    if (x.length === 0) return;
    const least = this.covers ? Math.min(this.whole[0], x[0]) : x[0];
    const most = this.covers ? Math.max(this.whole[1], x[x.length - 1]) : x[x.length - 1];
    this.covers = true;
    this.whole = [least, Math.max(most, least + 1)];
    this.now = [...this.whole];
  }

  show(from, to) {
    const [least, most] = this.whole;
    const width = Math.min(Math.max(to - from, Math.min(2, most - least)), most - least);
    from = Math.min(Math.max(from, least), most - width);
    this.now = [from, from + width];
    this.redraw();
  }

  showAll() {
    this.show(...this.whole);
  }

  zoom(factor, centre) {
    const [from, to] = this.now;
    this.show(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  move(share) {
    const width = this.now[1] - this.now[0];
    this.show(this.now[0] + share * width, this.now[1] + share * width);
  }

  redraw() {
    for (const chart of this.charts) chart.later();
  }
}

class Chart {
  /** `lines`: {name, colour, x, y, points, smooths}; `stacked`: the lines add up. */
  constructor(parent, range, { title, lines, stacked = false, canLog = true }) {
    Object.assign(this, { range, lines, stacked, canLog, log: false, smoothing: 0, hover: null, drag: null });
    for (const line of lines) {
      line.values = new Values(line.y);
      line.shown = true;
    }
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = document.createElement("figcaption");
    caption.textContent = title;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${title}. Plus and minus zoom, arrows move, 0 shows all steps.`);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    figure.append(caption, this.canvas, this.tip);
    parent.append(figure);
    range.charts.push(this);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.range.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.stepAt(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = { from: event.offsetX, to: event.offsetX };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.to = event.offsetX;
      this.hover = event.offsetX;
      this.later();
    });
    canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (!drag || Math.abs(drag.to - drag.from) < 6) return;
      const steps = [this.stepAt(drag.from), this.stepAt(drag.to)].sort((a, b) => a - b);
      this.range.show(...steps);
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => { this.hover = null; this.later(); });
    canvas.addEventListener("dblclick", () => this.range.showAll());
    canvas.addEventListener("keydown", (event) => {
      const middle = (this.range.now[0] + this.range.now[1]) / 2;
      const actions = { "+": () => this.range.zoom(0.6, middle), "-": () => this.range.zoom(1.6, middle), "0": () => this.range.showAll(),
        "ArrowLeft": () => this.range.move(-0.2), "ArrowRight": () => this.range.move(0.2) };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
  }

  setSmoothing(weight) {
    this.smoothing = weight;
    for (const line of this.lines) {
      line.smooth = null;
      if (weight === 0 || !line.smooths) continue;
      const y = new Float32Array(line.y.length);
      let mean = 0;
      let used = 0;  // weight of the values so far: the first values are not drawn to 0
      for (let i = 0; i < y.length; ++i) {
        if (line.y[i] === line.y[i]) {
          mean = weight * mean + (1 - weight) * line.y[i];
          used = weight * used + (1 - weight);
        }
        y[i] = used > 0 ? mean / used : NaN;
      }
      line.smooth = new Values(y);
    }
    this.later();
  }

  stepAt(pixel) {
    const { left, width } = this.area;
    const [from, to] = this.range.now;
    return from + (Math.min(Math.max(pixel - left, 0), width) / width) * (to - from);
  }

  later() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }

  shown() {
    return this.lines.filter((line) => line.shown && line.x.length > 0);
  }

  /** Returns [first, end) of the points in the range, with one more on each side. */
  bounds(line) {
    const first = Math.max(0, indexAt(line.x, this.range.now[0]) - 1);
    return [first, Math.min(line.x.length, indexAt(line.x, this.range.now[1]) + 1)];
  }

  valueRange() {
    let low = Infinity;
    let high = -Infinity;
    if (this.stacked) {
      const [first, end] = this.bounds(this.lines[0]);
      for (let i = first; i < end; ++i) high = Math.max(high, this.lines.reduce((sum, line) => sum + line.y[i], 0));
      low = 0;
    } else {
      for (const line of this.shown()) {
        const [first, end] = this.bounds(line);
        line.values.scan(first, end, end - first > 4096, (_, a, b) => {
          if (this.isLog() && a <= 0) a = b > 0 ? b : Infinity;
          if (a < low) low = a;
          if (b > high) high = b;
        });
      }
    }
    if (!(low <= high)) return [0, 1];
    if (this.isLog()) return [low / 1.05, high * 1.05];
    const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    return [this.stacked ? 0 : low - margin, high + margin];
  }

  isLog() {
    return this.log && this.canLog;
  }

  draw() {
    const scale = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (width === 0) return;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const paint = this.canvas.getContext("2d");
    paint.scale(scale, scale);
    this.area = { left: 60, top: 8, width: width - 68, height: height - 32 };
    const [low, high] = this.valueRange();
    const { left, top, width: w, height: h } = this.area;
    const [from, to] = this.range.now;
    const logs = this.isLog();
    const place = (value) => logs ? Math.log(Math.max(value, 1e-30)) : value;
    const pixelY = (value) => top + h - ((place(value) - place(low)) / (place(high) - place(low))) * h;
    const pixelX = (step) => left + ((step - from) / (to - from)) * w;
    this.drawAxes(paint, pixelX, pixelY, [low, high]);
    paint.save();
    paint.beginPath();
    paint.rect(left, top, w, h);
    paint.clip();
    if (this.stacked) this.drawStack(paint, pixelX, pixelY);
    else for (const line of this.shown()) this.drawLine(paint, line, pixelX, pixelY);
    paint.restore();
    this.drawPointer(paint, pixelX, pixelY);
  }

  drawAxes(paint, pixelX, pixelY, [low, high]) {
    const { left, top, width, height } = this.area;
    paint.font = "11px system-ui, sans-serif";
    paint.fillStyle = colourOf("--soft");
    paint.strokeStyle = colourOf("--line");
    paint.lineWidth = 1;
    paint.textAlign = "right";
    paint.textBaseline = "middle";
    const marks = this.isLog() ? logTicks(low, high, kLabelHeight / height) : niceTicks(low, high, height / 45);
    const texts = tickTexts(marks);
    for (const [i, value] of marks.entries()) {
      const y = Math.round(pixelY(value)) + 0.5;
      paint.beginPath();
      paint.moveTo(left, y);
      paint.lineTo(left + width, y);
      paint.stroke();
      paint.fillText(texts[i], left - 6, y);
    }
    paint.textAlign = "center";
    paint.textBaseline = "top";
    const steps = niceTicks(...this.range.now, width / 90);
    tickTexts(steps).forEach((text, i) => {
      const half = paint.measureText(text).width / 2;
      paint.fillText(text, Math.min(pixelX(steps[i]), this.canvas.clientWidth - half - 2), top + height + 9);
    });
  }

  drawLine(paint, line, pixelX, pixelY) {
    paint.strokeStyle = colourOf(line.colour);
    paint.fillStyle = paint.strokeStyle;
    if (line.smooth) {
      paint.globalAlpha = 0.25;
      this.drawValues(paint, line, line.values, pixelX, pixelY);
      paint.globalAlpha = 1;
    }
    this.drawValues(paint, line, line.smooth || line.values, pixelX, pixelY);
  }

  drawValues(paint, line, values, pixelX, pixelY) {
    const [first, end] = this.bounds(line);
    const x = line.x;
    const dense = end - first > kBlock * 2 * this.area.width;
    paint.lineWidth = 1.5;
    paint.lineJoin = "round";
    paint.beginPath();
    let column = -1e9;
    let low = 0;
    let high = 0;
    let began = false;
    const flush = () => {
      const top = pixelY(high);
      const bottom = pixelY(low);
      if (began) paint.lineTo(column, top);
      else paint.moveTo(column, top);
      began = true;
      if (bottom - top > 0.5) paint.lineTo(column, bottom);
    };
    const few = end - first <= 2 * this.area.width;
    values.scan(first, end, dense, (i, a, b) => {
      const at = few ? pixelX(x[i]) : Math.round(pixelX(x[i]));
      if (at === column) {
        if (a < low) low = a;
        if (b > high) high = b;
        return;
      }
      if (column > -1e9) flush();
      column = at;
      low = a;
      high = b;
    });
    if (column > -1e9) flush();
    if (line.dashed) paint.setLineDash([5, 4]);
    paint.stroke();
    paint.setLineDash([]);
    const sparse = end - first <= this.area.width / 8;
    if (line.points && sparse || end - first <= 2)
      for (let i = first; i < end; ++i) {
        paint.beginPath();
        paint.arc(pixelX(x[i]), pixelY(values.y[i]), 3, 0, 2 * Math.PI);
        paint.fill();
      }
  }

  drawStack(paint, pixelX, pixelY) {
    const x = this.lines[0].x;
    if (x.length === 0) return;
    const [first, end] = this.bounds(this.lines[0]);
    const below = new Float64Array(end - first);
    for (const line of this.lines) {
      paint.fillStyle = colourOf(line.colour);
      paint.beginPath();
      for (let i = first; i < end; ++i) paint.lineTo(pixelX(x[i]), pixelY(below[i - first]));
      for (let i = end - 1; i >= first; --i) {
        below[i - first] += line.y[i];
        paint.lineTo(pixelX(x[i]), pixelY(below[i - first]));
      }
      paint.fill();
    }
  }

  drawPointer(paint, pixelX, pixelY) {
    const { left, top, width, height } = this.area;
    this.tip.hidden = this.hover === null;
    if (this.hover === null) return;
    if (this.drag) {
      paint.fillStyle = colourOf("--accent");
      paint.globalAlpha = 0.15;
      paint.fillRect(this.drag.from, top, this.drag.to - this.drag.from, height);
      paint.globalAlpha = 1;
    }
    const step = this.stepAt(this.hover);
    const texts = [];
    let nearest = null;
    for (const line of this.shown()) {
      let i = Math.min(indexAt(line.x, step), line.x.length - 1);
      if (i > 0 && step - line.x[i - 1] < line.x[i] - step) --i;
      if (nearest === null || Math.abs(line.x[i] - step) < Math.abs(nearest - step)) nearest = line.x[i];
      const value = (line.smooth || line.values).y[i];
      texts.push(`${line.name}${line.points ? ` (step ${line.x[i]})` : ""}: ${formatNumber(value)}`);
      if (this.stacked || !Number.isFinite(value)) continue;
      paint.fillStyle = colourOf(line.colour);
      paint.beginPath();
      paint.arc(pixelX(line.x[i]), pixelY(value), 3.5, 0, 2 * Math.PI);
      paint.fill();
    }
    if (nearest === null) { this.tip.hidden = true; return; }
    const x = Math.min(Math.max(pixelX(nearest), left), left + width);
    paint.strokeStyle = colourOf("--soft");
    paint.beginPath();
    paint.moveTo(x, top);
    paint.lineTo(x, top + height);
    paint.stroke();
    this.tip.replaceChildren(...[`step ${nearest}`, ...texts].map((text) => {
      const row = document.createElement("div");
      row.textContent = text;
      return row;
    }));
    const room = this.canvas.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.min(Math.max(4, x + 16), Math.max(4, room + 8))}px`;
    this.tip.style.top = "34px";
  }
}
