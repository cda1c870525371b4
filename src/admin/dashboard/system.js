// The screens about what is around the proxy: origins, rows, certificates, the fleet.

import { facts, h, setText } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 5;
/** A list of rows is long. */
const REFRESH_ROWS_S = 30;
const ROWS_SHOWN = 200;
const DAY_S = 86_400;
/** A certificate that ends sooner is shown in red. */
const DAYS_MIN = 14;

export const origins = reading({
  id: 'origins',
  title: 'Origins',
  heading: 'The servers of the app',
  help: 'A server is down after failed requests or checks; requests then go to the others. Waiting requests have no free connection yet.',
  path: '/origins',
  refresh: REFRESH_S,
  make() {
    const table = new Table({
      caption: 'Servers by origin',
      key: ({ origin, server }) => JSON.stringify([origin.name, server.address]),
      empty: 'There is no origin.',
      columns: [
        { title: 'Server', long: true, text: ({ server }) => server.address },
        { title: 'Origin', text: ({ origin }) => origin.name },
        { title: 'State', text: ({ server }) => (server.up ? 'up' : 'down'), tone: ({ server }) => (server.up ? '' : 'bad') },
        { title: 'Waiting', number: true, text: ({ origin }) => say.count(origin.waiting) },
        { title: 'More', long: true, text: ({ server }) => others(server) },
      ],
    });
    const show = ({ origins: all }) =>
      table.update(all.flatMap((origin) => origin.servers.map((server) => ({ origin, server }))));
    return { elements: [table.element], show };
  },
});

/** What else the proxy says of a server. */
function others({ address, up, ...rest }) {
  const known = Object.entries(rest).filter(([, value]) => value !== null && typeof value !== 'object');
  return known.map(([name, value]) => `${name.replaceAll('_', ' ')}: ${value}`).join(', ') || '–';
}

export const rows = reading({
  id: 'rows',
  title: 'Rows',
  heading: 'Scheduled rows',
  help: 'Rows are read again at their interval. Late: by how much a row is older than that.',
  path: '/rows',
  refresh: REFRESH_ROWS_S,
  make() {
    const more = h('p', {});
    const table = new Table({
      caption: 'Rows, the latest first',
      key: ({ name, row }) => JSON.stringify([name, row]),
      empty: 'No row is scheduled.',
      sort: 4,
      columns: [
        { title: 'Row', long: true, text: ({ row }) => row, by: ({ row }) => row },
        { title: 'Source', text: ({ name }) => name, by: ({ name }) => name },
        { title: 'Every', number: true, text: ({ every: time }) => say.seconds(time), by: ({ every: time }) => time },
        { title: 'Refreshed', text: ({ refreshed }) => say.ago(refreshed), by: ({ refreshed }) => refreshed },
        { title: 'Late', number: true, text: ({ late }) => (late > 0 ? say.seconds(late) : 'no'), by: ({ late }) => late },
        { title: 'Failures', long: true, text: failures, by: ({ failures: count }) => count },
      ],
    });
    const show = ({ rows: all, more: isMore }) => {
      const worst = all.toSorted((one, other) => other.late - one.late);
      table.update(worst.slice(0, ROWS_SHOWN));
      const counted = `${isMore ? 'more than ' : ''}${say.count(all.length)}`;
      setText(more, all.length > ROWS_SHOWN ? `The ${ROWS_SHOWN} latest of ${counted} rows. The command anteroom rows list shows the others.` : '');
    };
    return { elements: [more, table.element], show };
  },
});

function failures({ failures: count, failure }) {
  return count > 0 ? `${say.count(count)}: ${failure ?? 'without a reason'}` : 'none';
}

export const certificates = reading({
  id: 'certificates',
  title: 'Certificates',
  heading: 'TLS certificates',
  help: `A certificate that ends within ${DAYS_MIN} days is marked. A renewed file is in use within seconds, without a reload.`,
  path: '/certificates',
  refresh: REFRESH_S,
  make() {
    const left = ({ not_after }) => (not_after - Date.now() / 1000) / DAY_S;
    const table = new Table({
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
    const ordered = new Table({
      caption: 'Names that certificates are ordered for, the first to be renewed at the top',
      key: ({ name }) => name,
      empty: 'None: no listener has tls = "auto".',
      columns: [
        { title: 'Name', long: true, text: ({ name }) => name },
        { title: 'State', text: ({ state }) => state, tone: ({ state }) => (state === 'in-use' || state === 'renewing' ? '' : 'bad') },
        { title: 'Ends', text: ({ not_after }) => (not_after ? say.time(not_after) : 'no certificate yet') },
        { title: 'Renewed', text: ({ renew_at }) => (renew_at ? say.time(renew_at) : 'not planned') },
        { title: 'Proved by', text: ({ challenge }) => challenge },
        { title: 'Authority', long: true, text: ({ issuer }) => issuer ?? 'none yet' },
        { title: 'Failures', long: true, text: failedOrders, tone: ({ failures: count }) => (count > 0 ? 'bad' : '') },
      ],
    });
    const show = ({ certificates: all, ordered: names = [] }) => {
      // Those that the proxy renews are in the other table.
      const renewed = new Set(names.map(({ name }) => name));
      const kept = all.filter((one) => !one.names.some((name) => renewed.has(name)));
      table.update(kept.toSorted((one, other) => one.not_after - other.not_after));
      ordered.update(names.toSorted((one, other) => (one.renew_at ?? 0) - (other.renew_at ?? 0)));
    };
    return { elements: [table.element, ordered.element], show };
  },
});

function failedOrders({ failures: count, last_error, next_try }) {
  if (count === 0) return 'none';
  return `${say.count(count)}: ${last_error ?? 'without a reason'}; next try ${say.time(next_try)}`;
}

function daysLeft(days) {
  if (days < 0) return 'over: clients refuse it';
  return days < DAYS_MIN ? `${Math.floor(days)}: renew it now` : say.count(Math.floor(days));
}

export const fleet = reading({
  id: 'fleet',
  title: 'Fleet',
  heading: 'Proxies on this store',
  help: 'Each proxy writes an entry every 5 s. Settings that must be alike and are not are marked: with them, proxies work against each other.',
  path: '/fleet',
  refresh: REFRESH_S,
  make() {
    const notes = h('div', {});
    const table = new Table({
      caption: 'Proxies by machine',
      key: ({ id }) => id,
      empty: 'No proxy has written an entry yet.',
      columns: [
        { title: 'Proxy', text: ({ host, own }) => (own ? `${host} (this one)` : host) },
        { title: 'Version', text: ({ version }) => version },
        { title: 'Runs since', text: ({ since }) => say.time(since) },
        { title: 'Entry', text: ({ age }) => `${say.seconds(age)} old` },
        { title: 'Purges behind', number: true, text: ({ purges_behind: behind }) => (behind == null ? 'unknown' : say.count(behind)), tone: ({ purges_behind: behind }) => (behind > 0 ? 'bad' : '') },
        { title: 'Clock', number: true, text: ({ clock }) => `${clock > 0 ? '+' : ''}${say.seconds(clock)}` },
        { title: 'Must match', long: true, text: ({ must_match: names }) => (names.length > 0 ? `differs: ${names.join(', ')}` : 'alike'), tone: ({ must_match: names }) => (names.length > 0 ? 'bad' : '') },
        { title: 'Other settings', long: true, text: ({ differs }) => (differs.length > 0 ? `differs: ${differs.join(', ')}` : 'alike') },
      ],
    });
    const show = ({ proxies, other_layout: other, moving }) => {
      table.update(proxies);
      notes.replaceChildren(facts([
        ['Layout', other && 'The store also has keys of the other [store] layout under this prefix. No proxy reads them.'],
        ['Move', moving],
      ]));
    };
    return { elements: [notes, table.element], show };
  },
});
