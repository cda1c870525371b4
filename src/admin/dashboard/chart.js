// A chart of the last five minutes, drawn by uPlot in the colours of the theme.

import { h, setText } from './dom.js';
import { SPAN_S } from './live.js';

const { uPlot } = globalThis;
const HEIGHT = 170;
/** Labels of the time axis, in minutes; on a narrow chart fewer have room. */
const MINUTES = [5, 4, 3, 2, 1, 0];
const MINUTES_NARROW = [4, 2, 0];
const NARROW = 420;
/** Lines differ by dashes, too: colours alone do not tell them apart for all. */
const DASHES = [[], [6, 4], [2, 3]];

/** The least room for the labels of the values, in pixels. */
const AXIS_MIN = 58;
/** The room of a label, in pixels: that of its characters, with tick and gap. */
const roomOf = (label) => 18 + 7 * String(label ?? '').length;
/** All charts that are shown, to be drawn again in another theme. */
const shown = new Set();

export function redrawCharts() {
  for (const chart of shown) chart.remake();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawCharts);

export class Chart {
  #series;
  #format;
  #scale;
  #plot = null;
  #isNarrow = false;
  #data = [[]];
  #values;
  #canvas = h('div', { class: 'plot', role: 'img' });
  #name;
  #observer = new ResizeObserver(() => this.#fit());

  /**
   * series  {name, color (a custom property of the style sheet), fill}
   * format  a value as text
   * scale   'share', 'log', or nothing for one that begins at 0
   */
  constructor({ name, help, series, format, scale }) {
    this.#name = name;
    this.#series = series;
    this.#format = format;
    this.#scale = scale;
    this.#values = series.map(() => h('span', { class: 'now' }, '–'));
    const legend = h('ul', { class: 'legend' }, ...series.map((line, place) => h('li', {},
      h('span', { class: `swatch swatch-${place}`, 'data-color': line.color }),
      line.name, ' ', this.#values[place])));
    this.element = h('figure', { class: 'chart' },
      h('figcaption', {}, h('h2', {}, name), h('p', { class: 'help' }, help)), legend, this.#canvas);
    this.#observer.observe(this.#canvas);
    shown.add(this);
  }

  /** Shows these columns: times, and the values of each series. */
  update(columns) {
    this.#data = columns;
    if (this.#plot) this.#plot.setData(columns);
    this.#tell(columns[0].length - 1);
    this.#describe();
  }

  close() {
    shown.delete(this);
    this.#observer.disconnect();
    this.#plot?.destroy();
  }

  /** Draws it again with the colours that are now in force. */
  remake() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#fit();
  }

  #fit() {
    const width = this.#canvas.clientWidth;
    if (width === 0) return;
    const isNarrow = width < NARROW;
    if (this.#plot && isNarrow === this.#isNarrow) {
      this.#plot.setSize({ width, height: HEIGHT });
      return;
    }
    this.#isNarrow = isNarrow;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(width), this.#data, this.#canvas);
  }

  /** Writes into the legend what the lines are at a place of the data. */
  #tell(place) {
    this.#values.forEach((value, line) => {
      setText(value, this.#format(this.#data[line + 1]?.[place]));
    });
  }

  #describe() {
    const values = this.#series.map(({ name }, line) =>
      `${name} ${this.#format(this.#data[line + 1]?.at(-1))}`);
    this.#canvas.setAttribute('aria-label', `${this.#name}, last 5 minutes; now: ${values.join(', ')}`);
  }

  #options(width) {
    const ink = colour('--muted');
    const grid = { stroke: colour('--line'), width: 1 };
    const minutes = width < NARROW ? MINUTES_NARROW : MINUTES;
    const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: '12px system-ui, sans-serif' };
    return {
      width,
      height: HEIGHT,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: false, range: () => this.#times() }, y: this.#range() },
      axes: [
        {
          ...axis,
          splits: () => minutes.map((ago) => this.#times()[1] - ago * 60),
          values: () => minutes.map((ago) => (ago ? `−${ago} min` : 'now')),
          size: 28,
        },
        {
          ...axis,
          size: (plot, labels) => Math.max(AXIS_MIN, ...(labels ?? []).map(roomOf)),
          ...(this.#scale === 'log' && { splits: (plot, place, low, high) => powers(low, high) }),
          values: (plot, splits) => splits.map((value) => this.#label(value)),
        },
      ],
      series: [{}, ...this.#series.map((line, place) => ({
        stroke: colour(line.color),
        fill: line.fill ? colour(line.fill) : undefined,
        dash: DASHES[place],
        width: 2,
        points: { show: false },
      }))],
      hooks: {
        setCursor: [({ cursor }) => this.#tell(cursor.idx ?? this.#data[0].length - 1)],
      },
    };
  }

  #times() {
    const last = this.#data[0].at(-1) ?? Date.now() / 1000;
    return [last - SPAN_S, last];
  }

  #range() {
    if (this.#scale === 'share') return { range: [0, 1] };
    if (this.#scale === 'log') {
      return { distr: 3, range: (plot, low, high) => decades(low, high) };
    }
    return { range: (plot, low, high) => [0, Math.max(high * 1.1, 1e-3)] };
  }

  #label(value) {
    if (this.#scale === 'share') return `${Math.round(value * 100)} %`;
    return this.#format(value);
  }
}

/** The powers of ten between two of them. */
function powers(low, high) {
  const [from, to] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  return Array.from({ length: to - from + 1 }, (_, place) => 10 ** (from + place));
}

/** Whole decades around the values. */
function decades(low, high) {
  if (!(low > 0)) return [1e-4, 1];
  const from = Math.floor(Math.log10(low));
  const to = Math.max(Math.ceil(Math.log10(high)), from + 1);
  return [10 ** from, 10 ** to];
}

/** A colour of the style sheet as the theme has it now. */
function colour(name) {
  const probe = h('span', { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
