// The screen "Routes": how each route does, and what to change in proxy.toml.

import { copyable, h, renew, section, setText } from './dom.js';
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
const shareOf = (names) => ({ results }) => part(sum(results, names), sum(results, ASKED));
const hits = shareOf(HITS);
const revalidated = shareOf(['revalidated']);

/** Its share of hits in the last minute. */
function recentShare(live, name) {
  const pair = live.routePair(name);
  const came = (names) => sum(pair.after.results, names) - sum(pair.before.results, names);
  return pair && part(came(HITS), came(ASKED));
}

const part = (some, all) => (all > 0 ? some / all : null);

export default {
  id: 'routes',
  title: 'Routes',
  build({ live }) {
    const requests = ({ name }) => perSecond(live, name, ({ results }) => sum(results, Object.keys(results)));
    const recent = ({ name }) => recentShare(live, name);
    const table = new Table({
      caption: 'Routes of proxy.toml, and what is not on any',
      key: ({ name }) => name,
      empty: 'No request has come yet.',
      sort: 1,
      detail: (route) => detail(live, route),
      columns: [
        { title: 'Route', long: true, text: ({ name }) => name, by: ({ name }) => name },
        { title: 'Requests/s', number: true, text: (it) => say.rate(requests(it)), by: requests },
        { title: 'Hit share', number: true, text: (it) => say.percent(recent(it)), by: recent },
        { title: 'Since the start', number: true, text: (it) => say.percent(hits(it)), by: hits },
        { title: 'Revalidated', number: true, text: (it) => say.percent(revalidated(it)), by: revalidated },
        { title: 'Top reason', text: ({ reasons }) => topReason(reasons), by: ({ reasons }) => reasons[0]?.[1] ?? null },
        { title: 'Last hit', text: ({ last_hit }) => say.ago(last_hit), by: ({ last_hit }) => last_hit },
        { title: 'App time', number: true, text: (it) => say.seconds(it.origin_seconds), by: (it) => it.origin_seconds },
        { title: 'Saved time', number: true, text: (it) => say.seconds(it.saved_seconds), by: (it) => it.saved_seconds },
      ],
    });
    const help = 'Requests per second and the hit share are of the last minute; all else is since the start. A reason says why requests went to the app. App time is what the app worked for this route; saved time is what it would have worked more without the cache. A row opens to what would help.';
    const stop = live.listen(({ routes }) => table.update(routes));
    return { element: section('All routes', help, table.element), close: stop };
  },
};

function topReason([first]) {
  return first ? `${first[0]} (${say.count(first[1])})` : 'none';
}

/** What a route opens to: what to change, and all reasons. It follows the figures: the operator sees whether a change helped. */
function detail(live, route) {
  const lately = h('p', {});
  const change = h('div', {});
  const reasons = h('div', {});
  const update = (now) => {
    const { name, advice } = now;
    setText(lately, advice ? recentCount(live, name, advice.reason) : '');
    const learns = !advice && now.reasons.some(([reason]) => reason === 'learn');
    renew(change, { name, advice, learns }, changes);
    renew(reasons, now.reasons, listed);
  };
  update(route);
  return { element: h('div', { class: 'detail' }, change, lately, reasons), update };
}

function changes({ name, advice, learns }) {
  const heading = h('h3', {}, `What would help ${name}`);
  if (learns) {
    return [heading, h('p', {}, 'Requests of this route went to the app in learn mode. The screen ',
      h('a', { href: '#/learn' }, 'Learn'), ' says what the cache would have done with them.')];
  }
  if (!advice) return [heading, h('p', {}, 'Nothing to change: no single reason keeps many requests from the cache.')];
  const lines = advice.toml && copyable(advice.toml, `lines for proxy.toml, route ${name}`);
  return [heading, h('p', {}, advice.text), ...(lines ? [lines] : [])];
}

/** Whether a reason still comes: the counts since the start do not say so after a change. */
function recentCount(live, name, reason) {
  const pair = live.routePair(name);
  if (!pair) return '';
  const counted = ({ reasons }) => reasons.find(([one]) => one === reason)?.[1] ?? 0;
  const total = ({ results }) => sum(results, Object.keys(results));
  const [came, all] = [counted, total].map((pick) => pick(pair.after) - pick(pair.before));
  if (all === 0) return 'In the last minute no request came to this route.';
  if (came === 0) return `In the last minute none of ${say.counted(all, 'request')} had the reason ${reason}: what was counted is older.`;
  return `In the last minute ${say.count(came)} of ${say.counted(all, 'request')} had the reason ${reason}.`;
}

function listed(reasons) {
  if (reasons.length === 0) return [];
  const list = reasons.map(([reason, count]) => h('li', {}, h('code', {}, reason), ` ${say.count(count)}`));
  return [h('h3', {}, 'Why requests went to the app'), h('ul', { class: 'reasons' }, ...list)];
}
