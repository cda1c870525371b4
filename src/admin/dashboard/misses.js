// The screen "Misses": the URLs that went to the app most, and what the cache says of each.

import { post } from './api.js';
import { facts, field, h, outcome, select } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 5;
const OUTCOMES = {
  hit: 'Answered from the cache',
  stale: 'Answered with a stale page',
  fetch: 'Fetched from the app for the cache, and answered with that',
  forward: 'Forwarded to the app as it came',
  row: 'Answered with a row',
  own: 'Answered by the proxy itself',
  refuse: 'Refused',
};

/** The URL without its scheme; the values of parameters are not known. */
const address = ({ host, path, parameters }) =>
  host + path + (parameters.length > 0 ? `?${parameters.map((name) => `${name}=…`).join('&')}` : '');

export default reading({
  id: 'misses',
  title: 'Misses',
  heading: 'Most missed URLs',
  help: 'The most frequent first, since the start. Of queries, only the names of parameters are kept. The mean time is that of the whole answer. A row opens to an explanation.',
  path: '/misses',
  refresh: REFRESH_S,
  make() {
    const table = new Table({
      caption: 'URLs by how often they went to the app',
      key: (it) => JSON.stringify([it.host, it.path, it.parameters, it.reason]),
      empty: 'No miss has come yet.',
      sort: 2,
      detail: explainer,
      columns: [
        { title: 'URL', long: true, text: address, by: address },
        { title: 'Reason', text: ({ reason }) => reason, by: ({ reason }) => reason },
        { title: 'Count', number: true, text: ({ count }) => say.count(count), by: ({ count }) => count },
        { title: 'Mean time', number: true, text: (it) => say.seconds(mean(it)), by: mean },
        { title: 'Last', text: ({ last }) => say.ago(last), by: ({ last }) => last },
        { title: 'Route', text: ({ route }) => route ?? '–', by: ({ route }) => route },
      ],
    });
    return { elements: [table.element], show: ({ misses }) => table.update(misses) };
  },
});

const mean = ({ seconds, count }) => (count > 0 ? seconds / count : null);

/** A small form that asks the proxy about this URL; its answer stands below. */
function explainer(miss) {
  const scheme = select([['http', 'http'], ['https', 'https']]);
  const cookies = h('input', { autocomplete: 'off', placeholder: 'consent=1; lang=de', spellcheck: 'false' });
  const answer = outcome();
  const submit = async (event) => {
    event.preventDefault();
    const query = miss.parameters.map((name) => `${encodeURIComponent(name)}=1`).join('&');
    const question = {
      url: `${scheme.value}://${miss.host}${miss.path}${query && `?${query}`}`,
      cookies: cookies.value.split(';').map((cookie) => cookie.trim()).filter(Boolean),
    };
    try {
      answer.show(explanation(await post('/explain', question)));
    } catch (error) {
      answer.bad(error);
    }
  };
  return h('div', { class: 'detail' },
    h('form', { class: 'row', onsubmit: submit },
      field('Scheme', scheme),
      field('Cookies of the request', cookies, 'Their names decide. They may be left out.'),
      h('button', {}, 'Explain')),
    answer.element);
}

function explanation(it) {
  const list = (names) => names.join(', ');
  const tier = (tier) => tier && (tier.error ?? (tier.page ? `a page, ${tier.page}${tier.ttl == null ? '' : `, ${tier.ttl} s left`}` : 'no page'));
  const parts = [
    h('p', {}, h('strong', {}, OUTCOMES[it.outcome] ?? it.outcome), `: ${it.why}.`),
    facts([
      ['Reason', it.reason],
      ['Cache-Status', it.cache_status && h('code', {}, it.cache_status)],
      ['Route', it.route && `${it.route.name}, shared with: ${it.route.share}`],
      ['Visitor', it.visitor && `${it.visitor.class}: ${it.visitor.why}`],
      ['Cookies', list(it.cookies.map(({ name, class: kind }) => `${name}: ${kind}`))],
      ['In memory', tier(it.memory)],
      ['In the store', tier(it.store)],
      ['Lately', it.uncacheable && [it.uncacheable, ...it.uncacheable.further].map(({ reason, why }) => `${reason}: ${why}`).join('; ')],
      ['Personal data', it.leak && `${it.leak.reason}: ${it.leak.why}`],
      ['Page', it.page && `${it.page.status} ${it.page.kind ?? ''}, ${say.bytes(it.page.bytes)}; kept for ${it.page.lifetime} s by ${it.page.source}`],
      ['Notes', list(it.notes)],
    ]),
  ];
  if (it.hints.length > 0) {
    const hints = it.hints.map(({ key, text }) => h('li', {}, h('code', {}, key), ` ${text}`));
    parts.push(h('h3', {}, 'What would help'), h('ul', {}, ...hints));
  }
  return h('div', {}, ...parts);
}
