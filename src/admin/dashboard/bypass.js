// The bypass switch: all requests, or those of a route, go to the app as if there were no cache.

import { post } from './api.js';
import { confirmed, field, h, outcome, section, select, setText } from './dom.js';
import { time } from './format.js';

const LENGTHS = [['600', '10 minutes'], ['3600', '1 hour'], ['21600', '6 hours'], ['86400', '1 day']];

const whose = (route) => (route == null ? 'all routes' : `route ${route}`);

/** What a switch that is on means, in sentences. */
export function bypassText({ route, until, by, only_here: isOnlyHere }) {
  const off = `The cache is switched off for ${whose(route)} until ${time(until)}${by ? `, by ${by}` : ''}.`;
  const where = isOnlyHere ? ' It is so on this proxy alone, until the store is back.' : '';
  return `${off}${where} All requests go to the app.`;
}

export const turnOff = (route) => post('/bypass', { on: false, route: route ?? null });

/** The part of a screen that shows the switch, and turns it for those who may. */
export function bypassSwitch({ live, can }) {
  const state = h('p', {});
  const help = 'For an emergency: every request goes to the app, and nothing is served from the cache or stored. It ends by itself.';
  const element = section('Bypass switch', help, state, can('bypass') ? controls(live) : null);
  const show = ({ bypasses }) =>
    setText(state, bypasses.length === 0 ? 'It is off.' : bypasses.map(bypassText).join(' '));
  return { element, show };
}

function controls(live) {
  const told = outcome();
  const routes = live.latest?.routes ?? [];
  const route = select([['', 'all routes'], ...routes.map(({ name }) => [name, name])]);
  const length = select(LENGTHS);
  const submit = async (event) => {
    event.preventDefault();
    const target = route.value || null;
    const detail = h('p', {}, `For ${length.selectedOptions[0].text}, every request of ${whose(target)} goes to the app. The app must bear that load.`);
    if (!(await confirmed('Switch the cache off?', detail, 'Switch off'))) return;
    try {
      await post('/bypass', { on: true, for: Number(length.value), route: target });
      told.good('The cache is switched off.');
    } catch (error) {
      told.bad(error);
    }
  };
  return h('form', { onsubmit: submit, class: 'row' },
    field('Routes', route), field('For', length),
    h('button', { class: 'danger' }, 'Switch the cache off …'), told.element);
}
