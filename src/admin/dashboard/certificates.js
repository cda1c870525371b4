// The screen "Certificates": those in files, and those that the proxy orders, with a button that renews one.

import { post } from './api.js';
import { button, confirmed, facts, h, renew } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 5;
const DAY_S = 86_400;
/** A certificate that ends sooner is shown in red. */
const DAYS_MIN = 14;
const GOOD = ['in-use', 'renewing'];

export default reading({
  id: 'certificates',
  title: 'Certificates',
  heading: 'TLS certificates',
  help: `A certificate that ends within ${DAYS_MIN} days is marked. A renewed file is in use within seconds, without a reload. A name that the proxy orders for opens to its last failure and its next try.`,
  path: '/certificates',
  refresh: REFRESH_S,
  make({ can, told, reload }) {
    const kept = keptTable();
    const ordered = orderedTable(can('certificates') ? (name) => order(name, told, reload) : null);
    const show = ({ certificates: all, ordered: names = [] }) => {
      // Those that the proxy renews are in the other table.
      const renewed = new Set(names.map(({ name }) => name));
      const own = all.filter((one) => !one.names.some((name) => renewed.has(name)));
      kept.update(own.toSorted((one, other) => one.not_after - other.not_after));
      ordered.update(names.toSorted((one, other) => (one.renew_at ?? 0) - (other.renew_at ?? 0)));
    };
    return { elements: [kept.element, ordered.element], show };
  },
});

function keptTable() {
  const left = ({ not_after }) => (not_after - Date.now() / 1000) / DAY_S;
  return new Table({
    caption: 'Certificates in files of your own, the first to end at the top',
    key: ({ listener, names, file }) => JSON.stringify([listener, names, file]),
    empty: 'None: no listener has certificate files.',
    columns: [
      { title: 'Names', long: true, text: ({ names }) => names.join(', ') },
      { title: 'Days left', number: true, text: (it) => daysLeft(left(it)), tone: (it) => (left(it) < DAYS_MIN ? 'bad' : '') },
      { title: 'Ends', text: ({ not_after }) => say.time(not_after) },
      { title: 'Listener', text: ({ listener }) => listener },
      { title: 'File', long: true, text: ({ file }) => file },
    ],
  });
}

/** `ask`: what renews the certificate of a name, for those who may. */
function orderedTable(ask) {
  return new Table({
    caption: 'Names that certificates are ordered for, the first to be renewed at the top',
    key: ({ name }) => name,
    empty: 'None: no listener has tls = "auto".',
    detail: (row) => detail(row, ask),
    columns: [
      { title: 'Name', long: true, text: ({ name }) => name },
      { title: 'State', text: ({ state }) => state, tone: ({ state }) => (GOOD.includes(state) ? '' : 'bad') },
      { title: 'Ends', text: ({ not_after }) => (not_after ? say.time(not_after) : 'no certificate yet') },
      { title: 'Renewed', text: ({ renew_at }) => (renew_at ? say.time(renew_at) : 'not planned') },
      { title: 'Proved by', text: ({ challenge }) => challenge },
      { title: 'Authority', long: true, text: ({ issuer }) => issuer ?? 'none yet' },
      { title: 'Failures', long: true, text: inShort, tone: ({ failures }) => (failures > 0 ? 'bad' : '') },
    ],
  });
}

function inShort({ failures, last_error }) {
  return failures > 0 ? `${say.count(failures)}: ${last_error ?? 'without a reason'}` : 'none';
}

/** What a name opens to. It follows the row: what comes of a renewal is seen there. */
function detail(row, ask) {
  const holder = h('div', {});
  const { name } = row;
  const update = (now) => renew(holder, orders(now), (pairs) => [facts(pairs)]);
  update(row);
  const again = ask && h('p', { class: 'buttons' },
    button('Renew …', () => ask(name), { class: 'danger', 'aria-label': `Renew … ${name}` }));
  return { element: h('div', { class: 'detail' }, holder, again), update };
}

function orders({ failures, last_error, failed_at, next_try, renew_at }) {
  const hasFailed = failures > 0;
  return [
    ['Failures since the last certificate', hasFailed ? say.count(failures) : 'none'],
    ['Last error', hasFailed && (last_error ?? 'without a reason')],
    ['Last failure', hasFailed && say.time(failed_at)],
    ['Next try', hasFailed && say.time(next_try)],
    ['Renewed', renew_at ? say.time(renew_at) : null],
  ];
}

/** Orders another certificate, after a question. */
async function order(name, told, reload) {
  const detail = h('p', {}, `The authority is asked for another certificate now. Until it is there, the one in use stays. Authorities limit how many they issue for the same names: Let's Encrypt issues 5 a week.`);
  if (!(await confirmed(`Renew the certificate of ${name}?`, detail, 'Renew'))) return;
  try {
    await post('/certificates/renew', { names: [name] });
    await reload();
    told.good(`Another certificate for ${name} is ordered. The table says how it goes.`);
  } catch (error) {
    told.bad(error);
  }
  told.element.focus();
}

function daysLeft(days) {
  if (days < 0) return 'over: clients refuse it';
  return days < DAYS_MIN ? `${Math.floor(days)}: renew it now` : say.count(Math.floor(days));
}
