// The screen "Differences": hits that were held against the app, and the pages that are not shared any more.

import { get, post } from './api.js';
import { button, confirmed, copyable, every, facts, figure, h, outcome, renew, section } from './dom.js';
import * as say from './format.js';
import { Table } from './table.js';

const REFRESH_S = 5;
const PLACES_SHOWN = 8;
const DEFAULT = '[cache]\naudit = "1/1000"';
const KINDS = {
  head: 'the status, Content-Type, Content-Language or Location',
  field: 'another header field',
};

export default {
  id: 'differences',
  title: 'Differences',
  build({ can }) {
    const told = outcome();
    const figures = makeFigures();
    const off = section('No hit was compared yet', null,
      h('p', {}, 'Few of the requests that a stored page would answer go to the app, and its answer is compared with the page. Where visitors see different things, the page is not shared any more. This line of proxy.toml, which is the default, says how often:'),
      copyable(DEFAULT, 'the line of the audit'));
    const load = async () => {
      try {
        show(await get('/cache-audit'));
        if (told.element.dataset.tone === 'bad') told.clear();
      } catch (error) {
        told.bad(error);
      }
    };
    const stopped = stoppedList(told, load, can('bypass'));
    const table = differencesTable();
    const show = (report) => {
      off.hidden = report.compared + report.unknown > 0 || report.stopped.length > 0;
      showFigures(figures, report);
      stopped.show(report.stopped);
      table.update(report.patterns.filter(({ differed, leaks }) => differed + leaks > 0));
    };
    off.hidden = true;
    const help = 'Since the start of this proxy. A row opens to where the pages differ, and to the lines of proxy.toml that help. No text of a page or of a visitor is kept.';
    const element = h('div', {}, told.element, off,
      h('dl', { class: 'figures four' }, ...Object.values(figures).map((one) => one.element)),
      section('Not shared any more', 'In all proxies on the store, until an order here or until proxy.toml says something else of the route.', stopped.element),
      section('What differs', help, table.element));
    return { element, close: every(REFRESH_S, load) };
  },
};

function makeFigures() {
  return {
    compared: figure('Hits compared', 'Requests that a stored page would have answered, and whose answer from the app was compared with it.'),
    same: figure('The same', 'The visitor would have got what the app says.'),
    noise: figure('Noise', 'What differs does so each time, by a nonce or a clock, or the page was edited.'),
    differed: figure('Different', 'The app gives this visitor something else, again and again.'),
  };
}

function showFigures(figures, { compared, same, noise, differed, leaks, unknown }) {
  const part = (some) => say.percent(compared > 0 ? some / compared : null);
  figures.compared.set(say.count(compared), `${say.count(unknown)} could not be`);
  figures.same.set(part(same), say.count(same));
  figures.noise.set(part(noise), say.count(noise));
  figures.differed.set(part(differed + leaks), `${say.count(differed)}, and ${say.count(leaks)} with a visitor's own words`, differed + leaks > 0 ? 'bad' : '');
}

const whole = ({ host, pattern }) => (pattern === '**' ? 'all pages' : host + pattern);

/** The stopped patterns; for those who may, each with the button that ends the stop. */
function stoppedList(told, reload, may) {
  const holder = h('div', {});
  const resume = async ({ host, pattern, route }) => {
    const detail = h('p', {}, `Visitors share ${whole({ host, pattern })} (route ${route}) again, on every proxy. If they still see different things there, some get what belongs to others until it is stopped again.`);
    if (!(await confirmed('Share these pages again?', detail, 'Share again'))) return;
    try {
      await post('/cache-audit/resume', { host, pattern, route });
      await reload();
      told.good('The pages are shared again.');
    } catch (error) {
      told.bad(error);
    }
    told.element.focus();
  };
  const row = (one) => h('li', {},
    h('strong', {}, whole(one)), ` (route ${one.route}): ${one.by}${one.only_here ? ', on this proxy alone until the store is back' : ''} `,
    may ? button('Share again …', () => resume(one), { class: 'danger', 'aria-label': `Share again … ${whole(one)}` }) : null);
  const make = (stopped) => (stopped.length === 0
    ? [h('p', { class: 'empty' }, 'All pages are shared as proxy.toml says.')]
    : [h('ul', {}, ...stopped.map(row))]);
  return { element: holder, show: (stopped) => renew(holder, stopped, make) };
}

function differencesTable() {
  return new Table({
    caption: 'Patterns of URLs, what differs first, at most 100',
    key: ({ host, pattern }) => host + pattern,
    empty: 'Nothing differs so far.',
    sort: 2,
    detail,
    columns: [
      { title: 'Pages', long: true, text: whole, by: whole },
      { title: 'Compared', number: true, text: (it) => say.count(it.compared), by: (it) => it.compared },
      { title: 'Different', number: true, text: (it) => say.count(it.differed), by: (it) => it.differed },
      { title: 'Own words', number: true, text: (it) => say.count(it.leaks), by: (it) => it.leaks, tone: ({ leaks }) => (leaks > 0 ? 'bad' : '') },
      { title: 'Networks', number: true, text: (it) => say.count(it.networks), by: (it) => it.networks },
      { title: 'Last', text: (it) => say.ago(it.differed_at), by: (it) => it.differed_at },
      { title: 'Route', text: ({ route }) => route, by: ({ route }) => route },
    ],
  });
}

const place = ({ kind, at, stored }) =>
  (kind === 'body' ? `the body at byte ${say.count(at)}, ${say.counted(stored, 'byte')} of the stored page` : KINDS[kind] ?? kind);

function detail({ path, places, causes, toml, leaks }) {
  const shown = places.slice(0, PLACES_SHOWN).map((one) => h('li', {}, place(one)));
  const more = places.length - shown.length;
  if (more > 0) shown.push(h('li', {}, `and ${say.counted(more, 'more place')}`));
  const parts = [
    facts([
      ['Last in', path],
      ['Explained by', causes.join(', or by ')],
      ['Own words', leaks > 0 && 'A stored page held words of the visitor. The app may have written them for all: look for the request that did.'],
    ]),
  ];
  if (shown.length > 0) parts.push(h('h3', {}, 'Where it differs'), h('ul', {}, ...shown));
  if (toml) parts.push(h('h3', {}, 'What would help'), copyable(toml, 'the lines that keep these visitors apart'));
  return h('div', { class: 'detail' }, ...parts);
}
