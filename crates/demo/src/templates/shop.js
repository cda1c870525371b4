// Fills in the visitor's own data on pages that are the same for everyone: the user name and the cart, which
// the proxy serves below /_anteroom/. Without this script the button on an item's page still works.
'use strict';

const CART = '/_anteroom/cart';
const badge = document.getElementById('cart-count');
const list = document.getElementById('cart');
const note = document.getElementById('cart-note');
// Tells the other tabs about a login or logout: all tabs have the same cookie.
const tabs = new BroadcastChannel('visitor');
let shown;

function greet(user) {
  shown = user;
  document.getElementById('account').textContent = user || 'Your account';
  document.getElementById('login').hidden = Boolean(user);
}

function show(items) {
  const counts = new Map(items.map(({ item, count }) => [item, count]));
  const all = items.reduce((sum, { count }) => sum + count, 0);
  badge.textContent = all;
  badge.hidden = all === 0;
  if (!list) return;
  let cents = 0;
  for (const row of list.children) {
    const count = counts.get(row.dataset.item) || 0;
    row.hidden = count === 0;
    row.querySelector('input').value = count;
    cents += count * row.dataset.cents;
  }
  note.textContent = cents === 0 ? 'It is empty.' : `Together € ${(cents / 100).toFixed(2)}.`;
  document.getElementById('cart-empty').hidden = cents === 0;
}

async function ask(how) {
  try {
    const answer = await fetch(CART, how);
    if (answer.ok) return show((await answer.json()).items);
    const nobody = answer.status === 401;
    if (nobody) {
      greet(null);
      show([]);
    }
    if (note) note.textContent = nobody ? 'Log in to have a cart.' : (await answer.json()).error;
  } catch {
    if (note) note.textContent = 'The cart cannot be shown now.';
  }
}

function put(item, count) {
  const headers = { 'Content-Type': 'application/json' };
  return ask({ method: 'PUT', headers, body: JSON.stringify({ item, count }) });
}

if (list) {
  list.addEventListener('change', ({ target }) => {
    put(target.closest('li').dataset.item, Math.trunc(Number(target.value)) || 0);
  });
  list.addEventListener('click', ({ target }) => {
    if (target.closest('button')) put(target.closest('li').dataset.item, 0);
  });
  document.getElementById('cart-empty').addEventListener('click', () => ask({ method: 'DELETE' }));
}

async function look() {
  ask();
  try {
    const { user } = await (await fetch('/_anteroom/me')).json();
    greet(user);
    tabs.postMessage(user);
  } catch {
    greet(null);
  }
}

tabs.addEventListener('message', ({ data }) => { if (data !== shown) look(); });
// On "back", a browser may restore the page in the state in which it was left.
addEventListener('pageshow', look);
addEventListener('pagehide', () => {
  greet(null);
  show([]);
});
