// The screens "Configuration" and "Audit": what is in force, and what was done.

import { get } from './api.js';
import { button, copyable, h, outcome, section } from './dom.js';
import * as say from './format.js';
import { reading } from './reading.js';
import { Table } from './table.js';

const REFRESH_S = 10;

export const configuration = {
  id: 'config',
  title: 'Configuration',
  build() {
    const told = outcome();
    const holder = h('div', {});
    const load = async () => {
      try {
        holder.replaceChildren(...inForce(await get('/config')));
        told.clear();
      } catch (error) {
        told.bad(error);
      }
    };
    load();
    return { element: h('div', {}, h('p', {}, button('Read again', load)), told.element, holder) };
  },
};

function inForce({ text, changed, warnings, reloads }) {
  const list = (lines, none) => (lines.length > 0
    ? h('ul', {}, ...lines.map((line) => h('li', {}, line)))
    : h('p', { class: 'empty' }, none));
  return [
    section('Warnings', 'What the proxy said when it read this configuration.', list(warnings, 'There is no warning.')),
    section('Changed keys', 'Keys that differ from their defaults.', list(changed, 'All keys have their defaults.')),
    section('Reloads', 'A refused reload changes nothing.',
      h('p', {}, `${say.count(reloads.done)} done, ${say.count(reloads.refused)} refused, since the start.`)),
    section('In force', 'Secrets are hidden.', copyable(text, 'the configuration in force')),
  ];
}

export const audit = reading({
  id: 'audit',
  title: 'Audit',
  heading: 'What was done',
  help: 'The last 200, by the name of the token. Values of queries are hidden.',
  path: '/audit',
  refresh: REFRESH_S,
  make() {
    const table = new Table({
      caption: 'Actions and failed logins, the newest first',
      key: ({ place }) => place,
      empty: 'Nothing was done yet.',
      columns: [
        { title: 'Time', text: ({ at }) => say.time(at) },
        { title: 'By', text: ({ name }) => name || 'unknown' },
        { title: 'Action', text: ({ action }) => action },
        { title: 'What', long: true, text: ({ what }) => say.withoutQueryValues(what || '–') },
        { title: 'Status', number: true, text: ({ status }) => String(status), tone: ({ status }) => (status >= 400 ? 'bad' : '') },
      ],
    });
    const show = ({ entries }) => {
      const newest = entries.toSorted((one, other) => other.at - one.at);
      table.update(newest.map((entry, place) => ({ ...entry, place })));
    };
    return { elements: [table.element], show };
  },
});
