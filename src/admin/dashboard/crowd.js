// The screen "Crowd": who takes the app's time lately, and the lines of proxy.toml that would stop it.

import { get } from './api.js';
import { copyable, every, facts, figure, h, outcome, renew, section } from './dom.js';
import * as say from './format.js';
import { Table } from './table.js';

const REFRESH_S = 2;
/** From which part of the app's time on, in percent, the lines against one are shown above the tables. */
const WORTH_STOPPING = 10;
const TABLES = [
  ['patterns', 'Paths', 'Path'],
  ['agents', 'User agents', 'User agent'],
  ['networks', 'Networks', 'Network'],
  ['classes', 'Classes of requests', 'Class'],
];

export default {
  id: 'crowd',
  title: 'Crowd',
  build() {
    const told = outcome();
    const taken = figure('App time taken', 'Seconds of the app in a second: with a second for each second, one request is always at work.');
    const asked = figure('Requests to the app', 'Of the last minutes: after each minute, half of them counts.');
    const origins = h('div', {});
    const remedies = h('div', {});
    const tables = TABLES.map(([key, title, first]) => ({ key, title, table: crowdTable(title, first) }));
    const load = async () => {
      try {
        const [crowd, { origins: all }] = await Promise.all([get('/crowd'), get('/origins')]);
        taken.set(`${say.rate(crowd.seconds_per_second)} s/s`);
        asked.set(say.count(crowd.requests));
        renew(origins, all.flatMap(originState), (states) => [facts(states)]);
        renew(remedies, remediesOf(crowd), showRemedies);
        for (const { key, table } of tables) table.update(crowd[key]);
        if (told.element.dataset.tone === 'bad') told.clear();
      } catch (error) {
        told.bad(error);
      }
    };
    const help = 'Of the last minutes. A row opens to its classes, and to the lines of proxy.toml that would stop or limit it. Addresses are kept as networks, and queries by the names of their parameters.';
    const element = h('div', {}, told.element,
      h('dl', { class: 'figures' }, taken.element, asked.element),
      section('The app now', null, origins),
      section('What would stop it', 'Put a [[route]] before the others: the first that matches counts.', remedies),
      ...tables.map(({ title, table }, place) => section(title, place === 0 ? help : null, table.element)));
    return { element, close: every(REFRESH_S, load) };
  },
};

/** The state of an origin's servers and of its queue, as names and words. */
function originState({ name, waiting, waiting_by_class: byClass, servers }) {
  const classes = Object.entries(byClass).filter(([, count]) => count > 0);
  const queue = waiting === 0 ? 'no request waits' : `${say.count(waiting)} wait: ${classes.map(([one, count]) => `${say.count(count)} ${one}`).join(', ')}`;
  return [...servers.map((server) => [server.address, serverState(server)]), [name, queue]];
}

function serverState({ up, busy, limit, has_queue: hasQueue, holds_back: holdsBack }) {
  if (!up) return 'down';
  if (limit === null) return hasQueue ? 'has a queue, and takes all requests' : 'takes all requests, without a limit';
  const state = `${say.count(busy)} at work, limit ${say.count(limit)}`;
  return holdsBack ? `holds strangers back, because it has a queue: ${state}` : state;
}

/** The lines against the heaviest of each table that has some. */
function remediesOf(crowd) {
  return TABLES.flatMap(([key, , first]) => {
    const found = crowd[key].find(({ stop }) => stop);
    return found && found.percent >= WORTH_STOPPING ? [{ what: `${first}: ${found.name}`, stop: found.stop }] : [];
  });
}

const showRemedies = (all) => (all.length === 0
  ? [h('p', { class: 'empty' }, 'Nothing takes so much of the app that a line is proposed.')]
  : all.flatMap(({ what, stop }) => [h('p', {}, what), copyable(stop, what)]));

function crowdTable(caption, first) {
  return new Table({
    caption: `${caption} by the app's time`,
    key: ({ name }) => name,
    empty: 'The app was asked for nothing lately.',
    sort: 1,
    detail,
    columns: [
      { title: first, long: true, text: ({ name }) => name || '(none)', by: ({ name }) => name },
      { title: 'App time', number: true, text: (it) => `${say.rate(it.seconds_per_second)} s/s`, by: (it) => it.seconds_per_second },
      { title: 'Part', number: true, text: ({ percent }) => say.percent(percent / 100), by: ({ percent }) => percent },
      { title: 'Requests', number: true, text: ({ requests }) => say.count(requests), by: ({ requests }) => requests },
      { title: 'New URLs', number: true, text: (it) => (it.endless ? 'endless' : say.count(it.new_urls)), by: (it) => it.new_urls, tone: ({ endless }) => (endless ? 'bad' : '') },
    ],
  });
}

function detail({ name, classes, stop }) {
  const counted = Object.entries(classes).filter(([, count]) => count >= 0.5);
  return h('div', { class: 'detail' },
    facts([['Requests by class', counted.map(([one, count]) => `${say.count(count)} ${one}`).join(', ')]]),
    stop ? copyable(stop, `the lines against ${name}`) : h('p', {}, 'No line is proposed.'));
}
