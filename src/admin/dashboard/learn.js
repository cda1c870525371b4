// The screen "Learn": what the cache would have done with the requests that came, and what to write for it.

import { get, post } from './api.js';
import { button, confirmed, copyable, every, facts, figure, h, outcome, renew, section, setText } from './dom.js';
import * as say from './format.js';
import { cookiesTable, pagesTable, routesTable } from './learn_tables.js';

const REFRESH_S = 5;
/** Of the lines of a proposal, how many characters name it. */
const LABEL_MAX = 80;
const MODES = {
  learn: 'All routes learn: every request goes to the app.',
  mixed: 'Some routes learn; the others serve from the cache.',
  mirror: 'This proxy gets copies of requests from another server, and forwards none.',
};
const TURN_ON = '[cache]\nmode = "learn"';

export default {
  id: 'learn',
  title: 'Learn',
  build({ can }) {
    const told = outcome();
    const off = notLearning();
    const on = learning(can('learn') && startAgain(told, () => load()));
    on.element.hidden = true;
    off.hidden = true;
    const load = async () => {
      try {
        const learned = await get('/learn');
        const isOn = learned.mode !== 'serve';
        off.hidden = isOn;
        on.element.hidden = !isOn;
        if (isOn) on.show(learned);
        // What came of a click stays until the next one.
        if (told.element.dataset.tone === 'bad') told.clear();
      } catch (error) {
        told.bad(error);
      }
    };
    return { element: h('div', {}, told.element, off, on.element), close: every(REFRESH_S, load) };
  },
};

/** What is shown while no route learns. */
function notLearning() {
  return section('No route learns', null,
    h('p', {}, 'In learn mode the proxy forwards every request and stores nothing. It compares what the app answers to different visitors, and says here how many requests the cache would answer, which pages differ between visitors and by what, and which lines of proxy.toml follow from that. Visitors get the app\'s own answers. This line begins it for all routes; in a [[route]], mode = "learn" is for that route alone:'),
    copyable(TURN_ON, 'the line that turns learn mode on'));
}

function learning(again) {
  const figures = makeFigures();
  const state = h('div', {});
  const proposals = proposalList();
  const parts = [pagesTable(), cookiesTable(), routesTable()];
  const element = h('div', {},
    h('dl', { class: 'figures four' }, ...Object.values(figures).map((one) => one.element)),
    section('Since when', null, state, again),
    section('Proposals', 'Lines for proxy.toml that follow from what was seen. Look at the pages that differ first. Where the file has a table already, put the lines below its heading; a list holds the names that it had, and replaces it. The command anteroom learn report --write FILE writes a whole file.', proposals.element),
    ...parts.map((part) => part.element));
  const show = (learned) => {
    showFigures(figures, learned);
    renew(state, inShort(learned), (pairs) => [facts(pairs)]);
    proposals.show(learned.proposals);
    for (const part of parts) part.show(learned);
  };
  return { element, show };
}

function makeFigures() {
  return {
    hits: figure('Would-be hit share', 'Of the requests whose result is known, the part that the cache would have answered.'),
    unknown: figure('Not known yet', 'Of all requests, the part for whose page no answer has shown yet what a fetch would get.'),
    alike: figure('Pages that are alike', 'Of the pages that were compared between visitors, those that are the same for all.'),
    saved: figure('App time to save', 'How much less the app would have had to work and to send.'),
  };
}

function showFigures(figures, report) {
  const { requests, hits, unknown, routes } = report;
  const { compared_pages: compared, same_pages: same, undecided_pages: undecided } = report;
  const part = (some, all) => say.percent(all > 0 ? some / all : null);
  const total = (pick) => routes.reduce((sum, route) => sum + pick(route), 0);
  const known = requests - unknown;
  figures.hits.set(part(hits, known), `${say.count(hits)} of ${say.counted(known, 'request')}`);
  figures.unknown.set(part(unknown, requests), `${say.count(unknown)} of ${say.counted(requests, 'request')}`);
  figures.alike.set(part(same, compared), `${say.count(same)} of ${say.counted(compared, 'page')}${undecided > 0 ? `, ${say.count(undecided)} not decided` : ''}`);
  figures.saved.set(say.seconds(total((route) => route.saved_seconds)), `and ${say.bytes(total((route) => route.saved_bytes))}`);
}

/** The facts in `[name, text]`. */
function inShort({ since, at, mode, followed_percent: followed, serves_rest: serves }) {
  return [
    ['Learns since', `${say.time(since)}, for ${say.seconds(at - since)}`],
    ['Mode', MODES[mode] ?? mode],
    ['What no route matches', serves ? 'will be served, by what is proposed' : 'learns on, by what is proposed: too little is known of it'],
    ['Followed', `${say.percent(followed / 100)} of URLs; the shares are right for all`],
  ];
}

/** Proposals by their lines: one that stays keeps its element, and so the focus in it. */
function proposalList() {
  const empty = h('p', { class: 'empty' }, 'Nothing to change yet.');
  const list = h('div', {});
  const shown = new Map();
  const add = (toml) => {
    const reason = h('p', {});
    const label = toml.replace(/\s+/g, ' ').slice(0, LABEL_MAX);
    const one = { reason, element: h('div', { class: 'proposal' }, reason, copyable(toml, label)) };
    shown.set(toml, one);
    return one;
  };
  const show = (proposals) => {
    empty.hidden = proposals.length > 0;
    const wanted = new Set(proposals.map(({ toml }) => toml));
    for (const [toml, { element }] of shown) {
      if (wanted.has(toml)) continue;
      element.remove();
      shown.delete(toml);
    }
    let place = list.firstElementChild;
    for (const { reason, toml } of proposals) {
      const one = shown.get(toml) ?? add(toml);
      setText(one.reason, reason);
      if (one.element === place) place = place.nextElementSibling;
      else list.insertBefore(one.element, place);
    }
  };
  return { element: h('div', {}, empty, list), show };
}

/** The button that forgets what was learned, after a question. */
function startAgain(told, reload) {
  const ask = async () => {
    const detail = h('p', {}, 'Counts, pages, cookies and proposals begin at zero. Do it after a change of the app or of proxy.toml.');
    if (!(await confirmed('Forget what was learned?', detail, 'Start again'))) return;
    try {
      await post('/learn/restart');
      await reload();
      told.good('What was learned is forgotten. It begins again.');
    } catch (error) {
      told.bad(error);
    }
    told.element.focus();
  };
  return h('p', { class: 'buttons' }, button('Start again …', ask, { class: 'danger' }));
}
