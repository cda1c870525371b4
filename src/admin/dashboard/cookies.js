// The screen "Cookies": which cookies visitors have, and which of them keep requests from the cache.

import { copyable, h, setText } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 10;
const BESIDE = '  # beside the names that are there';
/** Keys that a hint of the proxy may name, each with when it is right and its lines. */
const CURES = [
  ['[session] cookie', 'If it marks a logged-in user:', (name) => `[session]\ncookie = [${name}]${BESIDE}`],
  ['[cache] ignore_cookies', 'If no page of the app depends on it:', (name) => `[cache]\nignore_cookies = [${name}]${BESIDE}`],
  ['[[route]] key_cookies', 'If pages depend on it, in the [[route]] of these pages:', (name) => `key_cookies = [${name}]${BESIDE}`],
  ['[[route]] set_cookie', 'To keep it from visitors without a login, in the [[route]] of these pages:', () => 'set_cookie = "strip_for_anonymous"'],
];
const CLASSES = {
  session: 'It marks a logged-in user.',
  harmless: 'No page depends on it: it neither splits pages nor blocks them.',
  keyed: 'Pages depend on it: one page is stored for each value.',
  unknown: 'No rule names it: requests with it go to the app.',
};

export default reading({
  id: 'cookies',
  title: 'Cookies',
  heading: 'All cookies',
  help: 'Since the start. Blocks: requests that went to the app because of this cookie. A row opens to what would help.',
  path: '/top/cookies',
  refresh: REFRESH_S,
  make() {
    const totals = h('p', {});
    const table = new Table({
      caption: 'Cookies by name; values are never kept',
      key: ({ name }) => name,
      empty: 'No request with a cookie has come yet.',
      sort: 3,
      detail,
      columns: [
        { title: 'Cookie', long: true, text: ({ name }) => name, by: ({ name }) => name },
        { title: 'Requests', number: true, text: (it) => withShare(it.requests, it.requests_percent), by: (it) => it.requests },
        { title: 'Set by pages', number: true, text: (it) => withShare(it.pages, it.pages_percent), by: (it) => it.pages },
        { title: 'Blocks', number: true, text: (it) => say.count(it.bypasses), by: (it) => it.bypasses },
        { title: 'Kind', text: (it) => it.class, by: (it) => it.class },
      ],
    });
    const show = ({ requests, hits, pages, cookies, others }) => {
      const share = requests > 0 ? hits / requests : null;
      setText(totals, `${say.counted(requests, 'request')}, ${say.percent(share)} of them answered from the cache; ${say.counted(pages, 'HTML page')} from the app.`);
      table.update(others.requests > 0 ? [...cookies, others] : cookies);
    };
    return { elements: [totals, table.element], show };
  },
});

const withShare = (count, percent) => `${say.count(count)} (${say.percent(percent / 100)})`;

function detail(cookie) {
  const parts = [h('p', {}, `${cookie.class}: ${CLASSES[cookie.class] ?? ''}`)];
  if (cookie.hint) parts.push(h('p', {}, cookie.hint));
  // The name is a visitor's: it is no part of what the proxy says.
  const said = cookie.hint?.replaceAll(cookie.name, '') ?? '';
  for (const [key, when, lines] of CURES) {
    if (said.includes(key)) parts.push(h('p', {}, when), copyable(lines(say.tomlString(cookie.name)), when));
  }
  return h('div', { class: 'detail' }, ...parts);
}
