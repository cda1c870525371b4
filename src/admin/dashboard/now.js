// The screen "Now": how the proxy does at this moment, and in the last five minutes.

import { bypassSwitch } from './bypass.js';
import { Chart } from './chart.js';
import { facts, figure, h, section, setText } from './dom.js';
import * as say from './format.js';
import {
  FROM_ORIGIN, HITS, addBuckets, bucketsBetween, errorShare, hitShare, quantile, requestRate,
  revalidatedShare,
} from './live.js';
import { Table } from './table.js';

/** Over which the large figures are taken, in seconds. */
const NOW_S = 10;
const MINUTE_S = 60;

export const RESULTS = {
  hit_memory: 'hit, from memory',
  hit_store: 'hit, from the store',
  hit_flight: 'hit, shared a fetch',
  hit_stale: 'hit, stale',
  revalidated: 'revalidated',
  miss: 'miss',
  bypass: 'bypass',
  endpoint: 'own endpoint',
  error: 'error',
};

export default {
  id: 'now',
  title: 'Now',
  build({ live, can }) {
    const figures = makeFigures();
    const charts = makeCharts();
    const results = makeResults(live);
    const parts = makeParts();
    const bypasses = bypassSwitch({ live, can });
    const first = h('p', { class: 'empty' }, 'No request has come yet. The figures begin with the first one.');
    const element = h('div', {},
      first,
      h('dl', { class: 'figures' }, ...Object.values(figures).map((one) => one.element)),
      h('p', { class: 'help' }, 'The charts hold the last 5 minutes, from when this page was opened.'),
      h('div', { class: 'charts' }, ...charts.map(({ chart }) => chart.element)),
      section('Results', 'How requests were answered in the last minute. p50: half of them were faster. p99: 99 of 100 were faster.', results.element),
      h('div', { class: 'parts' }, ...parts.elements),
      bypasses.element);
    const stop = live.listen((status) => {
      first.hidden = total(status) > 0;
      showFigures(figures, live, status);
      for (const { chart, picks, smooth } of charts) chart.update(live.columns(picks(status), smooth));
      results.update(Object.keys(RESULTS).filter((name) => status.results[name]?.count > 0));
      parts.show(status, live);
      bypasses.show(status);
    });
    return {
      element,
      close() {
        stop();
        for (const { chart } of charts) chart.close();
      },
    };
  },
};

const total = ({ results }) => Object.values(results).reduce((sum, { count = 0 }) => sum + count, 0);

function makeFigures() {
  return {
    share: figure('Hit share', 'Of all requests for pages, the part that the cache answered without the app, in the last 5 minutes.'),
    requests: figure('Requests', 'Requests per second, over the last 10 s.'),
    saved: figure('App time saved', 'How much longer the app would have worked without the cache.'),
    latency: figure('Time to answer', 'Until the end of the response, in the last minute: half are faster than p50, 99 of 100 faster than p99.'),
    errors: figure('Errors', 'Of all responses, the part with a status of 5xx, in the last minute.'),
    origin: figure('Requests to the app', 'Requests per second that went to the app, over the last 10 s.'),
  };
}

function showFigures(figures, live, status) {
  const [short, minute, long] = [NOW_S, MINUTE_S, 300].map((span) => live.pair(span));
  const hits = HITS.reduce((sum, name) => sum + (status.results[name]?.count ?? 0), 0);
  const asked = hits + FROM_ORIGIN.reduce((sum, name) => sum + (status.results[name]?.count ?? 0), 0);
  const overall = asked > 0 ? `${say.percent(hits / asked)} since the start` : '';
  const confirmed = long && revalidatedShare(long);
  const revalidated = confirmed > 0 ? `${say.percent(confirmed)} revalidated` : '';
  figures.share.set(say.percent(long && hitShare(long)), [overall, revalidated].filter(Boolean).join(', '));
  figures.requests.set(short ? `${say.rate(requestRate(short))} /s` : '–', `${say.count(total(status))} since the start`);
  const saved = short && (short.after.saved_seconds - short.before.saved_seconds) / short.span;
  figures.saved.set(short ? `${say.rate(saved)} s/s` : '–',
    `${say.seconds(status.saved_seconds)} and ${say.bytes(status.saved_bytes)} since the start`);
  const all = minute ? bucketsBetween(minute, Object.keys(RESULTS)) : [];
  figures.latency.set(say.seconds(quantile(0.5, all, status.bounds)),
    `p99 ${say.seconds(quantile(0.99, all, status.bounds))}`);
  const failed = minute && errorShare(minute);
  figures.errors.set(say.percent(failed), `${say.count(status.statuses['5xx'] ?? 0)} since the start`, failed > 0.01 ? 'bad' : '');
  const asks = short && (short.after.origin.requests - short.before.origin.requests) / short.span;
  const refused = status.origin.errors;
  figures.origin.set(short ? `${say.rate(asks)} /s` : '–',
    `${say.count(refused)} failed since the start`);
}

function makeCharts() {
  const timeOf = (names, share) => ({ bounds }) => (pair) => {
    const time = quantile(share, bucketsBetween(pair, names), bounds);
    return Number.isFinite(time) ? time : null;
  };
  return [
    {
      chart: new Chart({
        name: 'Hit share',
        help: 'The part of requests that the cache answered without the app. Revalidated: the app confirmed a stored page.',
        series: [
          { name: 'hits', color: '--hit', fill: '--hit-soft' },
          { name: 'revalidated', color: '--miss' },
        ],
        format: say.percent,
        scale: 'share',
      }),
      picks: () => [hitShare, revalidatedShare],
      smooth: 5,
    },
    {
      chart: new Chart({
        name: 'Requests per second',
        help: 'Answered by the cache alone, or with the app.',
        series: [{ name: 'cache', color: '--hit' }, { name: 'app', color: '--miss' }],
        format: say.rate,
      }),
      picks: () => [
        (pair) => requestRate(pair, HITS),
        (pair) => requestRate(pair, FROM_ORIGIN),
      ],
      smooth: 5,
    },
    {
      chart: new Chart({
        name: 'Time to answer, p99',
        help: '99 of 100 requests are faster. The scale grows tenfold from line to line.',
        series: [{ name: 'hits', color: '--hit' }, { name: 'from the app', color: '--miss' }],
        format: say.seconds,
        scale: 'log',
      }),
      picks: (status) => [timeOf(HITS, 0.99)(status), timeOf(FROM_ORIGIN, 0.99)(status)],
      smooth: 15,
    },
    {
      chart: new Chart({
        name: 'App time saved per second',
        help: '1 s/s: without the cache, one more process of the app would be busy all the time.',
        series: [{ name: 'saved', color: '--accent', fill: '--accent-soft' }],
        format: (value) => (value == null ? '–' : `${say.rate(value)} s/s`),
      }),
      picks: () => [({ before, after, span }) => (after.saved_seconds - before.saved_seconds) / span],
      smooth: 5,
    },
  ];
}

function makeResults(live) {
  const time = (share) => (name) => {
    const minute = live.pair(MINUTE_S);
    return minute && quantile(share, bucketsBetween(minute, [name]), live.latest.bounds);
  };
  const perSecond = (name) => {
    const minute = live.pair(MINUTE_S);
    return minute && requestRate(minute, [name]);
  };
  const all = (name) => live.latest.results[name].count;
  return new Table({
    caption: 'Requests by result',
    key: (name) => name,
    empty: 'No request has come yet.',
    columns: [
      { title: 'Result', text: (name) => RESULTS[name] },
      { title: 'Per second', number: true, text: (name) => say.rate(perSecond(name)), by: perSecond },
      { title: 'p50', number: true, text: (name) => say.seconds(time(0.5)(name)), by: time(0.5) },
      { title: 'p99', number: true, text: (name) => say.seconds(time(0.99)(name)), by: time(0.99) },
      { title: 'Since the start', number: true, text: (name) => say.count(all(name)), by: all },
    ],
  });
}

/** The store, memory, connections and the process: each a list of facts. */
function makeParts() {
  const places = ['Store', 'Memory', 'Connections', 'Process'].map((title) => {
    const holder = h('div', {});
    return { title, holder, texts: new Map() };
  });
  const help = {
    Store: 'Where sessions and pages are kept. After time-outs, the breaker opens: requests then go on without the store for a moment.',
    Memory: 'What this process uses. Pages beyond the bound of [cache] memory make room for newer ones.',
    Connections: 'Open connections of clients, in all and by thread. A tunnel is a WebSocket or the like.',
    Process: 'The proxy that shows this page.',
  };
  const elements = places.map(({ title, holder }) => section(title, help[title], holder));
  const show = (status, live) => {
    const lists = [store(status, live), memory(status), connections(status), process(status)];
    places.forEach((place, at) => write(place, lists[at]));
  };
  return { elements, show };
}

/** Makes the list once, and then only changes texts in it. */
function write({ holder, texts }, pairs) {
  const names = pairs.map(([name]) => name).join('\n');
  if (holder.dataset.names !== names) {
    holder.dataset.names = names;
    texts.clear();
    for (const [name] of pairs) texts.set(name, h('span', {}));
    holder.replaceChildren(facts(pairs.map(([name]) => [name, texts.get(name)])));
  }
  for (const [name, text] of pairs) setText(texts.get(name), text);
}

function store({ store: it, bounds }, live) {
  const minute = live.pair(MINUTE_S);
  const buckets = minute ? addBuckets([], minute.after.store, minute.before.store) : [];
  const recent = minute ? it.timeouts - minute.before.store.timeouts : 0;
  return [
    ...(it.kind ? [['Kind', it.kind]] : []),
    ['State', it.connected ? 'connected' : 'away: requests go on without it'],
    ...[0.5, 0.99].filter(() => it.buckets).map((share) =>
      [`Time of a step, p${share * 100}`, say.seconds(quantile(share, buckets, bounds))]),
    ['Time-outs', `${say.count(it.timeouts)} (${say.count(recent)} in the last minute)`],
    ['Breaker opened', say.counted(it.breaker_openings, 'time')],
    ['Pages', say.bytes(it.pages_bytes)],
  ];
}

function memory({ memory: it }) {
  return [
    ['In all', say.bytes(it.resident)],
    ['Pages', `${say.bytes(it.pages)} (${say.counted(it.page_count, 'page')})`],
    ['Bodies in flight', say.bytes(it.in_flight)],
    ['All else', say.bytes(it.resident && Math.max(0, it.resident - it.pages - it.in_flight))],
  ];
}

function connections({ connections: it }) {
  const threads = it.per_thread.map((open, thread) => [`Thread ${thread + 1}`, say.count(open)]);
  return [['Open', say.count(it.open)], ['Tunnels', say.count(it.tunnels)], ...threads];
}

function process({ version, since, at, ready, sent_bytes }) {
  return [
    ['Version', version],
    ['Runs for', say.seconds(at - since)],
    ['State', ready ? 'takes requests' : 'not ready: it starts or drains'],
    ['Sent to clients', say.bytes(sent_bytes)],
  ];
}
