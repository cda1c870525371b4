// The tables of the screen "Learn": pages that differ, cookies, routes.

import { facts, h, renew, section } from './dom.js';
import * as say from './format.js';
import { Table } from './table.js';

/** Of pages, the worst first: what it means. */
const PAGE_VERDICTS = {
  'own-words': 'The page would be shared, and it holds words of the visitor\'s own request or login. It must not be shared.',
  'by-visitor': 'Each visitor gets the same page twice, and another visitor gets another one: the page is personal.',
  'by-cookie': 'The page differs by a cookie that is not in its key. Name it in [session] cookie if it is a login, in key_cookies of the route if it has few values.',
  'several-causes': 'The page differs by several causes, or by one of several that always come together. It is not shared.',
  'by-field': 'The page differs by a field of the request, or by the client\'s address. Let the app send Vary with its name; a language may be named in key_headers of the route.',
  differs: 'Answers differ, and it is not known by what. Look at two of them before the route serves.',
  undecided: 'Answers differ as time and chance would make them, too. More visitors, or one who asks again, will tell; until then the page is not shared by what is written.',
  noise: 'The page differs even when one visitor asks twice: by a nonce or a clock, for example. Visitors would share one of these answers.',
};
/** The same of cookies. */
const COOKIE_VERDICTS = {
  session: 'It marks a logged-in user.',
  keyed: 'Pages differ by it.',
  harmless: 'Pages are the same with different values of it.',
  unclear: 'Too little was seen with it to say.',
};

/** The URL without its scheme; the values of parameters are not known. */
const address = ({ host, path, parameters }) =>
  host + path + (parameters.length > 0 ? `?${parameters.map((name) => `${name}=…`).join('&')}` : '');

/** The higher, the worse; what this version does not know is the worst. */
const rank = (verdicts, verdict) => {
  const place = Object.keys(verdicts).indexOf(verdict);
  return place < 0 ? Infinity : -place;
};

/** What makes the difference. */
const cause = ({ cookie, field, finding }) => cookie ?? field ?? finding;

export function pagesTable() {
  const legend = h('div', { class: 'meanings' });
  const table = new Table({
    caption: 'Pages that differ, the worst first, at most 100; values of parameters are never kept',
    key: ({ host, path, parameters, route }) => JSON.stringify([host, path, parameters, route]),
    empty: 'No page differs so far.',
    sort: 1,
    detail: pageDetail,
    columns: [
      { title: 'Page', long: true, text: address, by: address },
      { title: 'Verdict', short: true, text: ({ verdict }) => verdict, by: ({ verdict }) => rank(PAGE_VERDICTS, verdict), tone: ({ verdict }) => (verdict === 'own-words' ? 'bad' : '') },
      { title: 'By', text: (page) => cause(page) ?? '–', by: cause },
      { title: 'Visitors', number: true, text: ({ visitors }) => say.count(visitors), by: ({ visitors }) => visitors },
      { title: 'Answers', number: true, text: ({ answers }) => say.count(answers), by: ({ answers }) => answers },
      { title: 'Route', text: ({ route }) => route, by: ({ route }) => route },
    ],
  });
  const show = ({ pages }) => {
    renew(legend, counted(pages), (counts) => [facts(counts.map(([verdict, count]) =>
      [`${verdict} (${say.count(count)})`, PAGE_VERDICTS[verdict] ?? verdict]))]);
    table.update(pages);
  };
  const help = 'By: the cookie or the field that makes the difference, or what was found in the page. A row opens to what it means.';
  return { element: section('Pages that differ', help, legend, table.element), show };
}

/** The verdicts that occur and how often, the worst first. */
function counted(pages) {
  const counts = new Map();
  for (const { verdict } of pages) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
  return [...counts].toSorted(([one], [other]) => rank(PAGE_VERDICTS, other) - rank(PAGE_VERDICTS, one));
}

function pageDetail({ verdict, finding, cookie, field, missing, route, visitors, answers }) {
  return h('div', { class: 'detail' },
    h('p', {}, PAGE_VERDICTS[verdict] ?? verdict),
    facts([
      ['Found in it', finding],
      ['Cookie', cookie],
      ['Field', field],
      ['What would tell', missing],
      ['Compared', `${say.counted(answers, 'answer')} to ${say.counted(visitors, 'visitor')}`],
      ['Route', route],
    ]));
}

export function cookiesTable() {
  const table = new Table({
    caption: 'Cookies by name; values are never kept',
    key: ({ name }) => name,
    empty: 'No request with a cookie has come yet.',
    sort: 3,
    detail: ({ name, verdict, text }) => h('div', { class: 'detail' },
      h('p', {}, `${name}: ${text}.`), h('p', { class: 'help' }, `${verdict}: ${COOKIE_VERDICTS[verdict] ?? ''}`)),
    columns: [
      { title: 'Cookie', long: true, text: ({ name }) => name, by: ({ name }) => name },
      { title: 'Verdict', short: true, text: ({ verdict }) => verdict, by: ({ verdict }) => rank(COOKIE_VERDICTS, verdict) },
      { title: 'Configured as', short: true, text: (it) => it.class, by: (it) => it.class },
      { title: 'Requests', number: true, text: ({ requests }) => say.count(requests), by: ({ requests }) => requests },
      { title: 'Set by', number: true, text: (it) => say.count(it.set_by), by: (it) => it.set_by },
      { title: 'Pages same', number: true, text: (it) => say.count(it.pages_same), by: (it) => it.pages_same },
      { title: 'Pages differ', number: true, text: (it) => say.count(it.pages_differ), by: (it) => it.pages_differ },
    ],
  });
  const help = 'The verdict is what the pages show; beside it is what proxy.toml says now. Set by: pages that set it. Same and differ: pages with different values of the cookie. A row opens to the reason.';
  return { element: section('What cookies do', help, table.element), show: ({ cookies }) => table.update(cookies) };
}

export function routesTable() {
  const share = (some, all) => (all > 0 ? some / all : null);
  const hits = (it) => share(it.hits, it.requests - it.unknown);
  const unknown = (it) => share(it.unknown, it.requests);
  const table = new Table({
    caption: 'Routes that learn',
    key: ({ name }) => name,
    empty: 'No request has come yet.',
    sort: 1,
    detail: routeDetail,
    columns: [
      { title: 'Route', long: true, text: ({ name }) => name, by: ({ name }) => name },
      { title: 'Requests', number: true, text: ({ requests }) => say.count(requests), by: ({ requests }) => requests },
      { title: 'Would hit', number: true, text: (it) => say.percent(hits(it)), by: hits },
      { title: 'Not known yet', number: true, text: (it) => say.percent(unknown(it)), by: unknown },
      { title: 'Fetches', number: true, text: ({ fetches }) => say.count(fetches), by: ({ fetches }) => fetches },
      { title: 'Time to save', number: true, text: (it) => say.seconds(it.saved_seconds), by: (it) => it.saved_seconds },
      { title: 'Bytes to save', number: true, text: (it) => say.bytes(it.saved_bytes), by: (it) => it.saved_bytes },
    ],
  });
  const help = 'Would hit: of the requests whose result is known. Fetches are requests that would have fetched a page for the cache. Time and bytes are those of the hits. A row opens to why its requests would go to the app all the same.';
  return { element: section('Routes that learn', help, table.element), show: ({ routes }) => table.update(routes) };
}

function routeDetail({ reasons }) {
  if (reasons.length === 0) return h('div', { class: 'detail' }, h('p', {}, 'No request would go to the app for a reason of its own.'));
  const list = reasons.map(([reason, count]) => h('li', {}, h('code', {}, reason), ` ${say.count(count)}`));
  return h('div', { class: 'detail' }, h('h3', {}, 'Why requests would go to the app'), h('ul', { class: 'reasons' }, ...list));
}
