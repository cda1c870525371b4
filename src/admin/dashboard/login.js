// The form that asks for a token.

import { logIn } from './api.js';
import { field, h, outcome } from './dom.js';

/** The form; `then` runs once the proxy has taken the token. */
export function logInForm(then) {
  const told = outcome();
  const token = h('input', { type: 'password', name: 'token', required: true, autocomplete: 'current-password' });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await logIn(token.value.trim());
    } catch (error) {
      token.value = '';
      token.focus();
      return told.bad(error);
    }
    then();
  };
  return h('form', { method: 'post', action: '/login', class: 'card login', onsubmit: submit },
    h('h1', {}, 'Log in'),
    h('p', {}, 'With the token of [admin] token in proxy.toml, or one of [[admin.tokens]].'),
    field('Token', token),
    h('button', {}, 'Log in'),
    told.element,
    h('p', { class: 'help' }, 'The session lasts 12 hours, and ends after an hour without use.'));
}
