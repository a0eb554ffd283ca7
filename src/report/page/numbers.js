"use strict";

/* Numbers as text, positions in sorted lists, and the marks of axes. */

function formatNumber(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) return `${trimmed(value / (name === "k" ? 1e3 : unit))}${name}`;
  if (size !== 0 && size < 1e-3) return Number(value.toPrecision(3)).toExponential();
  return trimmed(value);
}

function trimmed(value) {
  return String(Number(value.toPrecision(4)));
}

/** Returns the first index with x[index] >= `value`. */
function indexAt(x, value) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * unit >= rough) * unit;
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) ticks.push(Number(value.toPrecision(12)));
  return ticks;
}

/** Returns the labels of the marks of an axis: short ones, unless two of them would be equal. */
function tickTexts(ticks) {
  const texts = ticks.map(formatNumber);
  const long = (value) => value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value);
  return new Set(texts).size === texts.length ? texts : ticks.map(long);
}

/** Returns the marks of a log axis. `space`: the length of a mark's label, as a share of the axis. */
function logTicks(low, high, space) {
  const decades = Math.log10(high / low);
  const least = space * decades;  // least distance of two marks in decades, so that their labels do not touch
  const factors = [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]].find((list, i) => least <= [0.079, 0.3, 0.47, Infinity][i]);
  const every = Math.max(1, Math.ceil(least));
  const ticks = [];
  for (let exponent = Math.floor(Math.log10(low) / every) * every; exponent <= Math.ceil(Math.log10(high)); exponent += every)
    for (const factor of factors)
      if (factor * 10 ** exponent >= low && factor * 10 ** exponent <= high) ticks.push(factor * 10 ** exponent);
  return ticks.length > 1 ? ticks : niceTicks(low, high, 4);
}
