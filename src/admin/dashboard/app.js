// The dashboard: login, navigation between screens, notices on all of them, and the theme.

import { get, onLoggedOut, post } from './api.js';
import { bypassText, turnOff } from './bypass.js';
import certificates from './certificates.js';
import { redrawCharts } from './chart.js';
import cookies from './cookies.js';
import crowd from './crowd.js';
import differences from './differences.js';
import { button, h, outcome, setText } from './dom.js';
import { counted, seconds } from './format.js';
import learn from './learn.js';
import { Live } from './live.js';
import { logInForm } from './login.js';
import misses from './misses.js';
import now from './now.js';
import purge from './purge.js';
import { audit, configuration } from './records.js';
import routes from './routes.js';
import sessions from './sessions.js';
import { fleet, origins, rows } from './system.js';

/** In the order of the navigation. A further screen is a module and a place in this list. */
const SCREENS = [
  now, routes, misses, crowd, cookies, learn, differences, sessions, purge, origins, rows, certificates, fleet, configuration, audit,
];
/** The roles that may do what a screen or a part of one needs. */
const ROLES = {
  purge: ['purge', 'all'],
  sessions: ['sessions', 'all'],
  bypass: ['all'],
  learn: ['all'],
  certificates: ['all'],
};
const THEME = 'anteroom-theme';

const byId = (id) => document.getElementById(id);
const main = byId('main');
const nav = byId('nav');
const live = new Live();
let me = null;
let open = null;

start();

function start() {
  setUpTheme();
  onLoggedOut(askForToken);
  addEventListener('hashchange', () => me && show(true));
  byId('logout').addEventListener('click', logOut);
  byId('skip').addEventListener('click', (event) => {
    // The address names the screen: the link must not change it.
    event.preventDefault();
    main.focus();
  });
  setInterval(showLateness, 1000);
  live.listen(showNotices);
  enter(false);
}

/** Asks who this is, and shows the screen that the address names; after a login, with the focus. */
async function enter(isStep) {
  try {
    me = await get('/me');
  } catch (error) {
    if (error.status !== 401) showFailure(error);
    return;
  }
  setText(byId('who'), `${me.name} (role ${me.role})`);
  byId('account').hidden = false;
  nav.hidden = false;
  nav.replaceChildren(h('ul', {}, ...SCREENS.filter(isAllowed).map(({ id, title }) =>
    h('li', {}, h('a', { href: `#/${id}` }, title)))));
  live.start();
  show(isStep);
}

const can = (what) => ROLES[what].includes(me.role);
const isAllowed = ({ needs }) => !needs || can(needs);

/** Shows the screen of the address; after a step of the reader, the focus goes with it. */
function show(isStep) {
  const id = location.hash.replace(/^#\/?/, '') || now.id;
  const screen = SCREENS.find((one) => one.id === id);
  leave();
  for (const link of nav.querySelectorAll('a')) {
    const isIt = link.hash === `#/${id}`;
    if (isIt) {
      link.setAttribute('aria-current', 'page');
      link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else {
      link.removeAttribute('aria-current');
    }
  }
  const title = h('h1', { tabindex: '-1' }, screen?.title ?? 'No such screen');
  document.title = `${title.textContent} – Anteroom`;
  main.replaceChildren(title, body(screen));
  if (isStep) {
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function body(screen) {
  if (!screen) return h('p', {}, 'This page does not have that screen. Choose one above.');
  if (!isAllowed(screen)) {
    return h('p', {}, `Your role is ${me.role}. This screen needs the role ${ROLES[screen.needs].join(' or ')}.`);
  }
  open = screen.build({ live, can });
  return open.element;
}

function leave() {
  open?.close?.();
  open = null;
}

function askForToken() {
  if (main.querySelector('.login')) return;
  leave();
  live.stop();
  me = null;
  nav.hidden = true;
  byId('account').hidden = true;
  byId('notices').replaceChildren();
  delete byId('notices').dataset.state;
  document.title = 'Log in – Anteroom';
  main.replaceChildren(logInForm(() => enter(true)));
  main.querySelector('input').focus();
}

async function logOut() {
  try {
    await post('/logout');
  } catch (error) {
    return showFailure(error);
  }
  // All that was shown goes with it.
  location.reload();
}

function showFailure(error) {
  const told = outcome();
  told.bad(error);
  main.replaceChildren(told.element, h('p', {}, button('Try again', () => location.reload())));
}

/** Why few requests hit although nothing is wrong. */
const MODES = {
  learn: 'Learn mode: each request is forwarded to the app, and nothing is served from the cache.',
  mixed: 'Some routes are in learn mode: their requests are forwarded, and nothing of them is served from the cache.',
  mirror: 'Learn mode beside the site: requests are counted, and not forwarded.',
};

/** What matters on every screen: learn mode, the bypass switch, and a proxy that is not ready. */
function showNotices({ ready, bypasses, mode, version, stopped }) {
  setText(byId('proxy'), version);
  const notices = byId('notices');
  // `until` is worked out anew for each reading, and differs in its last digits.
  const state = JSON.stringify([ready, bypasses.map(bypassText), mode, stopped]);
  if (notices.dataset.state === state) return;
  notices.dataset.state = state;
  notices.replaceChildren(...bypasses.map(bypassNotice));
  if (MODES[mode]) notices.append(modeNotice(mode));
  if (stopped > 0) notices.append(stoppedNotice(stopped));
  if (!ready) notices.append(notice('The proxy is not ready: it starts, or drains before it ends.'));
}

const notice = (text, ...more) => h('div', { class: 'notice bad' }, h('span', { role: 'status' }, text), ...more);

const modeNotice = (mode) => h('div', { class: 'notice' },
  h('span', { role: 'status' }, MODES[mode]), ' ', h('a', { href: '#/learn' }, 'What would have been hits'));

const stoppedNotice = (stopped) => h('div', { class: 'notice bad' },
  h('span', { role: 'status' }, `Visitors see different things in pages that were shared: ${counted(stopped, 'pattern')} ${stopped === 1 ? 'is' : 'are'} not shared any more.`), ' ', h('a', { href: '#/differences' }, 'Where they differ'));

function bypassNotice(bypass) {
  if (!can('bypass')) return notice(bypassText(bypass));
  const off = button('Switch the cache on', async () => {
    try {
      await turnOff(bypass.route);
    } catch (error) {
      off.replaceWith(h('span', { role: 'alert' }, error.message));
    }
  });
  return notice(bypassText(bypass), ' ', off);
}

/** The words are announced once; the seconds beside them are not. */
function showLateness() {
  const late = live.lateness();
  byId('lost').hidden = late === 0;
  setText(byId('lost-text'), late > 0 ? 'Connection lost.' : '');
  setText(byId('lost-since'), late > 0 ? `The last reading is ${seconds(Math.floor(late))} old. Trying again.` : '');
}

function setUpTheme() {
  const choice = byId('theme');
  const apply = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    redrawCharts();
  };
  choice.value = localStorage.getItem(THEME) ?? 'auto';
  apply(choice.value);
  choice.addEventListener('change', () => {
    localStorage.setItem(THEME, choice.value);
    apply(choice.value);
  });
}
