// The live figures: the stream of readings, the last five minutes of them, and rates between two.
//
// Counters only grow, from the start of the proxy: a rate is the difference of two readings.

import { get, Refused } from './api.js';

export const SPAN_S = 300;
/** Readings that are kept, one a second. */
const POINTS_MAX = 300;
/** Between two readings of routes that are kept: 12 of them make a minute. */
const ROUTES_EVERY_S = 5;
const ROUTES_MAX = 13;
/** A stream is late after this. */
const LATE_MS = 5_000;
const RETRY_MS = 2_000;
const RETRY_MAX_MS = 30_000;
const NO_ROUTE = { results: {}, reasons: [] };
/** The cache answered, and the app was not asked. */
export const HITS = ['hit_memory', 'hit_store', 'hit_flight', 'hit_stale'];
/** The app was asked: it confirmed a stored page, or answered itself. */
export const FROM_ORIGIN = ['revalidated', 'miss', 'bypass'];

export class Live {
  /** The newest reading. */
  latest = null;
  #points = [];
  #routes = [];
  #listeners = new Set();
  #stream = null;
  #retry = null;
  #pause = RETRY_MS;
  #receivedAt = null;
  #isOn = false;

  constructor() {
    document.addEventListener('visibilitychange', () => this.#turn());
  }

  /** Opens the stream; in a hidden tab it rests. */
  start() {
    this.#isOn = true;
    this.#turn();
  }

  stop() {
    this.#isOn = false;
    this.#turn();
  }

  /** Calls this with each reading; the function that ends it. */
  listen(listener) {
    this.#listeners.add(listener);
    if (this.latest) listener(this.latest);
    return () => this.#listeners.delete(listener);
  }

  /** How many seconds the newest reading is overdue; 0 while the stream runs. */
  lateness() {
    if (!this.#isOn || document.hidden || this.#receivedAt === null) return 0;
    const passed = Date.now() - this.#receivedAt;
    return passed > LATE_MS ? passed / 1000 : 0;
  }

  /** The newest reading, and the one that is at least so many seconds older, or the oldest. */
  pair(seconds) {
    return pairAt(this.#points, this.#points.length - 1, seconds);
  }

  /** The same of a route's counters; those of a route that is new began at 0. */
  routePair(name) {
    const [first, last] = [this.#routes[0], this.latest];
    const find = (reading) => reading?.routes.find((route) => route.name === name);
    const [before, after] = [find(first) ?? NO_ROUTE, find(last)];
    return first && after && last.at > first.at ? { before, after, span: last.at - first.at } : null;
  }

  /** Columns for a chart: times, and what `picks` say of each point and the one `smooth` s before. */
  columns(picks, smooth) {
    const columns = [[], ...picks.map(() => [])];
    this.#points.forEach((point, place) => {
      const pair = pairAt(this.#points, place, smooth);
      if (!pair) return;
      const gap = point.at - this.#points[place - 1].at;
      if (gap > smooth * 2) addPoint(columns, point.at - gap / 2, picks.map(() => null));
      addPoint(columns, point.at, picks.map((pick) => pick(pair)));
    });
    return columns;
  }

  #turn() {
    const shall = this.#isOn && !document.hidden;
    if (shall && !this.#stream && !this.#retry) this.#open();
    if (!shall) this.#close();
  }

  #open() {
    this.#retry = null;
    // A tab that was hidden has not lost anything yet.
    this.#receivedAt = Date.now();
    const stream = new EventSource('/events');
    stream.onmessage = ({ data }) => {
      this.#pause = RETRY_MS;
      this.#receivedAt = Date.now();
      this.#take(JSON.parse(data));
    };
    stream.onerror = () => {
      // The browser makes a broken connection again by itself; a refusal is final for it.
      if (stream.readyState === EventSource.CLOSED) this.#again();
    };
    this.#stream = stream;
  }

  #close() {
    this.#stream?.close();
    this.#stream = null;
    clearTimeout(this.#retry);
    this.#retry = null;
  }

  async #again() {
    this.#close();
    const received = this.#receivedAt;
    this.#retry = setTimeout(() => {
      if (!this.#isOn || document.hidden) return this.#close();
      this.#open();
      this.#receivedAt = received;
    }, this.#pause);
    this.#pause = Math.min(this.#pause * 2, RETRY_MAX_MS);
    // A session that is over shows the login.
    await get('/me').catch((error) => {
      if (!(error instanceof Refused)) throw error;
    });
  }

  #take(told) {
    const reading = { ready: true, bypasses: [], ...told };
    const last = this.latest;
    // A stream that is opened again may begin with the reading that the one before ended with.
    if (last && reading.since === last.since && reading.at === last.at) return;
    if (last && (reading.since !== last.since || reading.at < last.at)) {
      // Another process: its counters begin at 0. Or its clock was set back.
      this.#points = [];
      this.#routes = [];
    }
    this.latest = reading;
    keep(this.#points, compact(reading), SPAN_S, POINTS_MAX);
    const newest = this.#routes.at(-1);
    if (!newest || reading.at - newest.at >= ROUTES_EVERY_S) {
      keep(this.#routes, { at: reading.at, routes: reading.routes }, 62, ROUTES_MAX);
    }
    for (const listener of this.#listeners) listener(reading);
  }
}

/** What a reading holds for charts. */
function compact({ at, results, statuses, origin, store, saved_seconds }) {
  return { at, results, statuses, origin, store, saved_seconds };
}

function keep(points, point, span, most) {
  points.push(point);
  while (points.length > most || points[0].at < point.at - span) points.shift();
}

function addPoint(columns, at, values) {
  columns[0].push(at);
  values.forEach((value, place) => columns[place + 1].push(value));
}

function pairAt(points, place, seconds) {
  if (place < 1) return null;
  const last = points[place];
  let before = place - 1;
  while (before > 0 && points[before].at > last.at - seconds + 0.25) before -= 1;
  const first = points[before];
  return { before: first, after: last, span: last.at - first.at };
}

const counted = (results, names) =>
  names.reduce((sum, name) => sum + (results[name]?.count ?? 0), 0);
const grown = ({ before, after }, names) =>
  counted(after.results, names) - counted(before.results, names);

/** Of the requests for pages that a pair holds, the share with these results; `null` without any. */
function shareOf(pair, names) {
  const all = grown(pair, [...HITS, ...FROM_ORIGIN]);
  return all > 0 ? grown(pair, names) / all : null;
}

/** The share that the cache answered without the app. */
export const hitShare = (pair) => shareOf(pair, HITS);

/** The share for which the app confirmed a stored page. */
export const revalidatedShare = (pair) => shareOf(pair, ['revalidated']);

/** Requests a second with one of these results; without names, with any. */
export function requestRate(pair, names = Object.keys(pair.after.results)) {
  return grown(pair, names) / pair.span;
}

/** Of all responses, the share of 5xx; `null` without any. */
export function errorShare({ before, after }) {
  const of = (name) => (after.statuses[name] ?? 0) - (before.statuses[name] ?? 0);
  const all = Object.keys(after.statuses).reduce((sum, name) => sum + of(name), 0);
  return all > 0 ? of('5xx') / all : null;
}

/** The buckets that were filled between two readings of some results. */
export function bucketsBetween({ before, after }, names) {
  const sum = [];
  for (const name of names) addBuckets(sum, after.results[name], before.results[name]);
  return sum;
}

/** Adds to `sum` what came to a histogram. */
export function addBuckets(sum, after, before) {
  after?.buckets?.forEach((value, place) => {
    sum[place] = (sum[place] ?? 0) + value - (before?.buckets?.[place] ?? 0);
  });
  return sum;
}

/**
 * The time within which this share of requests was answered, interpolated in its bucket; `null`
 * without requests, `Infinity` beyond the last bound.
 */
export function quantile(share, buckets, bounds) {
  const all = buckets.reduce((sum, value) => sum + value, 0);
  if (all <= 0) return null;
  let left = share * all;
  for (const [place, value] of buckets.entries()) {
    if (value > 0 && left <= value) {
      if (place >= bounds.length) return Infinity;
      const low = place === 0 ? 0 : bounds[place - 1];
      return low + (bounds[place] - low) * (left / value);
    }
    left -= value;
  }
  return Infinity;
}
