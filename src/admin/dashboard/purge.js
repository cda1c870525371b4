// The screen "Purge": makes pages stale, or removes them, after a look at what is meant.

import { post } from './api.js';
import { button, choice, field, h, outcome, section } from './dom.js';
import * as say from './format.js';

const KINDS = {
  urls: { label: 'URL', help: 'Each page in all its forms, such as https://shop.example/item/7. A path such as /item/7 means that path at every host.' },
  tags: { label: 'tag', help: 'All pages that the app gave this tag, such as product-7.' },
  prefixes: { label: 'prefix', help: 'The path and everything below it, such as https://shop.example/item/.' },
  globs: { label: 'glob', help: 'A path with *, such as /item/*/reviews. Everything below the folder before the first * is purged.' },
  all: { label: 'everything', help: 'All pages of all hosts.' },
};
const LINES_MAX = 100;

export default {
  id: 'purge',
  title: 'Purge',
  needs: 'purge',
  build() {
    const plan = outcome();
    const text = h('textarea', { rows: '3', spellcheck: 'false', autocomplete: 'off' });
    const help = h('span', { class: 'help' });
    const kinds = choice('What to purge', 'kind', Object.entries(KINDS).map(([kind, { label }]) => [kind, label]));
    const how = choice('How', 'how', [
      ['soft', 'soft: pages become stale and are checked at the next request'],
      ['hard', 'hard: pages are removed, and are not served even if the app fails'],
    ]);
    const lines = h('label', { class: 'field' }, h('span', {}, 'One in each line'), text, help);
    // A look at an order that was changed meanwhile is not shown.
    let look = 0;
    const form = h('form', {
      onsubmit: async (event) => {
        event.preventDefault();
        plan.clear();
        const own = look += 1;
        try {
          const wish = read(form, text);
          const preview = await post('/purge', { ...wish.order, dry_run: true });
          if (own === look) propose(wish, preview, plan);
        } catch (error) {
          if (own === look) plan.bad(error);
        }
      },
      oninput: () => {
        look += 1;
        plan.clear();
        showKind();
      },
    }, kinds, lines, how, h('button', {}, 'Look at what it touches'));
    const showKind = () => {
      const kind = new FormData(form).get('kind');
      help.textContent = KINDS[kind].help;
      text.disabled = kind === 'all';
    };
    showKind();
    return { element: section('Purge pages', 'It holds on every proxy of the store.', form, plan.element) };
  },
};

/** The order that the form means; throws what is wrong with it, with its line. */
function read(form, text) {
  const fields = new FormData(form);
  const kind = fields.get('kind');
  const hard = fields.get('how') === 'hard';
  if (kind === 'all') return { kind, order: { all: true, hard }, touches: [KINDS.all.help] };
  const lines = text.value.split('\n').map((line) => line.trim()).filter(Boolean);
  if (lines.length === 0) throw new Error(`Write at least one ${KINDS[kind].label}.`);
  if (lines.length > LINES_MAX) throw new Error(`At most ${LINES_MAX} lines at once; these are ${lines.length}.`);
  const touches = lines.map((line, place) => {
    try {
      return touched(kind, line);
    } catch (error) {
      throw new Error(`Line ${place + 1}: ${error.message}`);
    }
  });
  return { kind, order: { [kind]: lines, hard }, touches };
}

/** What a line means, as a sentence. */
function touched(kind, line) {
  if (kind === 'tags') {
    if (/\s/.test(line)) throw new Error('a tag has no spaces; write each tag in a line of its own');
    return `Pages with the tag ${line}`;
  }
  const [where, path] = place(line);
  if (kind === 'urls') return `${path} ${where}, in every form`;
  if (kind === 'prefixes') return `${path} and everything below it ${where}`;
  if (!path.includes('*')) throw new Error('a glob has a *; for one page choose URL');
  const folder = path.slice(0, path.lastIndexOf('/', path.indexOf('*')) + 1);
  return `Everything below ${folder} ${where}`;
}

/** The host and the path of a line, as the proxy reads it. */
function place(line) {
  if (line.startsWith('/')) return ['at every host', line];
  if (!/^https?:\/\//i.test(line)) throw new Error('begin with http://, https:// or /');
  if (!URL.canParse(line)) throw new Error('this is no URL');
  const { host } = new URL(line);
  const path = line.replace(/^https?:\/\/[^/?#]*/i, '') || '/';
  return [`at ${host}`, path];
}

/** How many pages are meant, of those that are known. */
const inMemory = (pages) => `${say.counted(pages, 'page')} in memory`;

/** Shows the order and what it would hit, to be confirmed. */
function propose({ order, touches }, preview, plan) {
  const run = button(order.hard ? 'Remove these pages' : 'Make these pages stale', async () => {
    run.disabled = true;
    try {
      plan.good(...done(await post('/purge', order)));
    } catch (error) {
      plan.bad(error);
    }
    plan.element.focus();
  }, { class: 'danger' });
  const lines = touches.map((line, place) => {
    const touched = preview.touches[place];
    return h('li', {}, touched ? `${line}: ${inMemory(touched.pages)}` : line);
  });
  const all = `In all ${inMemory(preview.pages)} of this proxy. Pages that are only in the store, or in the memory of another proxy, are purged, too, and are not counted.`;
  const note = preview.note ? [h('p', {}, `Note: ${preview.note}.`)] : [];
  plan.show(h('h3', {}, order.hard ? 'This removes:' : 'This makes stale:'),
    h('ul', { class: 'touches' }, ...lines), h('p', {}, all), ...note, run);
}

function done({ pages, confirmed, note }) {
  const told = [h('p', {}, `Purged. ${say.counted(pages, 'page')} in the memory of this proxy ${pages === 1 ? 'was' : 'were'} hit; pages that are only in the store are purged, too.`)];
  const all = confirmed
    ? 'All proxies on the store have confirmed it.'
    : 'A proxy has not confirmed it. It is cut off from the store, and follows within a second.';
  told.push(h('p', {}, all));
  if (note) told.push(h('p', {}, `Note: ${note}.`));
  return told;
}
