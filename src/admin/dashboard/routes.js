// The screen "Routes": how each route does, and what to change in proxy.toml.

import { copyable, h, section } from './dom.js';
import * as say from './format.js';
import { FROM_ORIGIN, HITS } from './live.js';
import { Table } from './table.js';

const ASKED = [...HITS, ...FROM_ORIGIN];

const sum = (results, names) => names.reduce((all, name) => all + (results[name] ?? 0), 0);
const perSecond = (live, name, pick) => {
  const pair = live.routePair(name);
  return pair && (pick(pair.after) - pick(pair.before)) / pair.span;
};

/** A route's share of some results since the start; `null` without requests. */
const shareOf = (names) => ({ results }) => {
  const all = sum(results, ASKED);
  return all > 0 ? sum(results, names) / all : null;
};
const hits = shareOf(HITS);
const revalidated = shareOf(['revalidated']);

export default {
  id: 'routes',
  title: 'Routes',
  build({ live }) {
    const requests = ({ name }) => perSecond(live, name, ({ results }) => sum(results, Object.keys(results)));
    const table = new Table({
      caption: 'Routes of proxy.toml, and what is not on any',
      key: ({ name }) => name,
      empty: 'No request has come yet.',
      sort: 1,
      detail,
      columns: [
        { title: 'Route', text: ({ name }) => name, by: ({ name }) => name },
        { title: 'Requests/s', number: true, text: (it) => say.rate(requests(it)), by: requests },
        { title: 'Hit share', number: true, text: (it) => say.percent(hits(it)), by: hits },
        { title: 'Revalidated', number: true, text: (it) => say.percent(revalidated(it)), by: revalidated },
        { title: 'Top reason', text: ({ reasons }) => topReason(reasons), by: ({ reasons }) => reasons[0]?.[1] ?? null },
        { title: 'Last hit', text: ({ last_hit }) => say.ago(last_hit), by: ({ last_hit }) => last_hit },
        { title: 'App time', number: true, text: (it) => say.seconds(it.origin_seconds), by: (it) => it.origin_seconds },
        { title: 'Saved time', number: true, text: (it) => say.seconds(it.saved_seconds), by: (it) => it.saved_seconds },
      ],
    });
    const help = 'Requests per second are of the last minute; all else is since the start. A reason says why requests went to the app. App time is what the app worked for this route; saved time is what it would have worked more without the cache. A row opens to what would help.';
    const stop = live.listen(({ routes }) => table.update(routes));
    return { element: section('All routes', help, table.element), close: stop };
  },
};

function topReason([first]) {
  return first ? `${first[0]} (${say.count(first[1])})` : 'none';
}

/** What a route opens to: what to change, and all reasons. */
function detail({ name, advice, reasons }) {
  const parts = [h('h3', {}, `What would help ${name}`)];
  if (advice) {
    parts.push(h('p', {}, advice.text));
    if (advice.toml) parts.push(copyable(advice.toml, `lines for proxy.toml, route ${name}`));
  } else {
    parts.push(h('p', {}, 'Nothing to change: no single reason keeps many requests from the cache.'));
  }
  if (reasons.length > 0) {
    const list = reasons.map(([reason, count]) => h('li', {}, h('code', {}, reason), ` ${say.count(count)}`));
    parts.push(h('h3', {}, 'Why requests went to the app'), h('ul', { class: 'reasons' }, ...list));
  }
  return h('div', { class: 'detail' }, ...parts);
}
