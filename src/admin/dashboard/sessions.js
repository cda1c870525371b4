// The screen "Sessions": finds sessions, shows and exports what they hold, and logs out.

import { post } from './api.js';
import { button, choice, confirmed, download, facts, field, h, outcome, section } from './dom.js';
import * as say from './format.js';
import { Table } from './table.js';

const LISTED = 50;
/** Pieces of one long command, at most: what goes on longer is for the command line. */
const PIECES_MAX = 500;

export default {
  id: 'sessions',
  title: 'Sessions',
  needs: 'sessions',
  build() {
    const told = outcome();
    const whole = h('div', { class: 'buttons' });
    const table = new Table({
      caption: 'Sessions; without a search, the most recently seen first',
      key: ({ id }) => id,
      empty: 'No session is found.',
      detail: (session) => detail(session, told, () => list(wanted)),
      columns: [
        { title: 'User', long: true, text: ({ user, confirmed: is }) => (is ? user : `${user} (typed at a login)`) },
        { title: 'Id', text: ({ id }) => id },
        { title: 'Since', text: ({ since }) => say.time(since) },
        { title: 'Last seen', text: ({ seen }) => say.ago(seen) },
        { title: 'State', text: ({ over }) => (over ? 'over, waits for the cleaner' : 'open') },
      ],
    });
    let wanted = {};
    let rows = [];
    let next = null;
    const more = button('Show more', () => list(wanted, next));

    const list = async (what, from = null) => {
      wanted = what;
      try {
        const answer = await find(what, from);
        rows = from ? [...rows, ...answer.sessions] : answer.sessions;
        next = answer.next;
        table.update(rows);
        more.hidden = !next;
        whole.replaceChildren(...(what.user ? wholeUser(what.user, told, () => list(wanted)) : []));
        told.clear();
      } catch (error) {
        told.bad(error);
      }
    };
    list({});
    const parts = [searchForm(list), told.element, whole, table.element, more];
    const help = 'An id stands for a session here: the token itself is never shown. Revoking logs out on every proxy of the store.';
    return { element: section('Find sessions', help, ...parts) };
  },
};

function find({ id, user }, from) {
  if (id) return post('/sessions/show', { id });
  return post('/sessions/list', { limit: LISTED, ...(user && { user }), ...(from && { from }) });
}

function searchForm(list) {
  const text = h('input', { autocomplete: 'off', spellcheck: 'false', name: 'text' });
  const submit = (event) => {
    event.preventDefault();
    const value = text.value.trim();
    const by = new FormData(event.currentTarget).get('by');
    list(value ? { [by]: value } : {});
  };
  return h('form', { class: 'row', onsubmit: submit, role: 'search' },
    choice('Find by', 'by', [['user', 'user'], ['id', 'id']]),
    field('User or id', text, 'Empty: all sessions.'),
    h('button', {}, 'Find'));
}

/** What can be done with all sessions of a user. */
function wholeUser(user, told, reload) {
  const name = safeName(user);
  return [
    button('Export all of this user', () => tellOf(told, async () => {
      const sessions = await pieces('/sessions/show', { user }, (piece) => piece.sessions);
      download(`sessions-of-${name}.json`, { user, sessions: sessions.flat() });
      return `Exported ${say.counted(sessions.flat().length, 'session')}.`;
    })),
    button('Revoke all of this user …', async () => {
      const detail = h('p', {}, `All sessions of ${user} end. Carts are handed on as at a logout.`);
      if (!(await confirmed('Log this user out everywhere?', detail, 'Revoke all'))) return;
      await tellOf(told, async () => {
        const counts = await pieces('/sessions/revoke', { user }, (piece) => piece.sessions);
        await reload();
        return `Revoked ${say.counted(counts.reduce((sum, some) => sum + some, 0), 'session')}.`;
      });
    }, { class: 'danger' }),
  ];
}

/** Shows what came of a command, and takes the focus there: what had it may be gone. */
async function tellOf(told, command) {
  try {
    told.good(await command());
  } catch (error) {
    told.bad(error);
  }
  told.element.focus();
}

/** Repeats a long command until all pieces are there. */
async function pieces(path, what, pick) {
  const found = [];
  let from = null;
  for (let piece = 0; piece < PIECES_MAX; piece += 1) {
    const answer = await post(path, from ? { ...what, from } : what);
    found.push(pick(answer));
    from = answer.next;
    if (!from) return found;
  }
  throw new Error('This takes long: use the command anteroom sessions or anteroom user.');
}

/** What a session opens to. */
function detail(session, told, reload) {
  const held = h('div', {}, 'Loading …');
  const show = async () => {
    const { sessions: [found] } = await post('/sessions/show', { id: session.id });
    held.replaceChildren(found ? contents(found) : 'This session is gone.');
    return found;
  };
  show().catch((error) => {
    held.replaceChildren();
    told.bad(error);
  });
  const save = () => tellOf(told, async () => {
    download(`session-${session.id}.json`, await post('/sessions/show', { id: session.id }));
    return 'Exported.';
  });
  const revoke = async () => {
    const text = h('p', {}, `The session ${session.id} of ${session.user} ends on every proxy.`);
    if (!(await confirmed('Revoke this session?', text, 'Revoke'))) return;
    await tellOf(told, async () => {
      const { sessions } = await post('/sessions/revoke', { id: session.id });
      await reload();
      return sessions > 0 ? 'Revoked.' : 'This session was gone.';
    });
  };
  return h('div', { class: 'detail' }, held,
    h('p', { class: 'buttons' }, button('Export as JSON', save), button('Revoke …', revoke, { class: 'danger' })));
}

function contents({ attributes, cart, viewed }) {
  const none = 'none';
  return facts([
    ['Attributes', attributes.map(([name, value]) => `${name}: ${value}`).join(', ') || none],
    ['Cart', cart.map(({ item, count }) => `${count} × ${item}`).join(', ') || none],
    ['Viewed last', viewed.map(({ item, at }) => `${item} (${say.ago(at)})`).join(', ') || none],
  ]);
}

const safeName = (user) => user.replace(/[^A-Za-z0-9._-]/g, '_').slice(0, 40);
