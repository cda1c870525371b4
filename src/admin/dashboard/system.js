// The screens about what is around the proxy: origins, rows, the fleet.

import { facts, h, setText } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 5;
/** A list of rows is long. */
const REFRESH_ROWS_S = 30;
const ROWS_SHOWN = 200;

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
