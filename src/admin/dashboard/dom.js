// Builds elements. All text goes in as text, never as markup: much of it comes from strangers.

/** An element with attributes (`on…` are listeners) and children; false and null are left out of both. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child != null && child !== false));
  return element;
}

/** Sets a text only if it is another: a selection in it stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows what `make` makes of `source`, unless it shows that already: focus and selection stay. */
export function renew(holder, source, make) {
  const state = JSON.stringify(source);
  if (holder.dataset.state === state) return;
  holder.dataset.state = state;
  holder.replaceChildren(...make(source));
}

export const button = (label, onclick, attributes = {}) =>
  h('button', { type: 'button', ...attributes, onclick }, label);

/** A field with its label, and a remark below. */
export function field(label, input, help) {
  const note = help && h('span', { class: 'help' }, help);
  return h('label', { class: 'field' }, h('span', {}, label), input, note);
}

export const select = (options, attributes = {}) =>
  h('select', attributes, ...options.map(([value, label]) => h('option', { value }, label)));

/** A set of radio buttons; the first is chosen. */
export function choice(legend, name, options) {
  const rows = options.map(([value, label], place) =>
    h('label', { class: 'radio' },
      h('input', { type: 'radio', name, value, checked: place === 0 }), h('span', {}, label)));
  return h('fieldset', {}, h('legend', {}, legend), ...rows);
}

/** A part of a screen, under a heading of its own. */
export function section(title, help, ...children) {
  const id = `part-${title.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`;
  const heading = h('h2', { id }, title);
  const note = help && h('p', { class: 'help' }, help);
  return h('section', { class: 'card', 'aria-labelledby': id }, heading, note, ...children);
}

/** A list of names and what they are: `[name, text or element]`. */
export function facts(pairs) {
  const list = h('dl', { class: 'facts' });
  for (const [name, value] of pairs) {
    if (!value) continue;
    list.append(h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  }
  return list;
}

/** A figure with its name and what it means; `set` writes it. */
export function figure(name, help) {
  const value = h('dd', { class: 'value' }, '–');
  const more = h('dd', { class: 'more' });
  const element = h('div', { class: 'figure' },
    h('dt', {}, name), value, more, h('dd', { class: 'help' }, help));
  const set = (text, second = '', tone = '') => {
    setText(value, text);
    setText(more, second);
    value.dataset.tone = tone;
  };
  return { element, set };
}

/** A place for an outcome, which is announced. */
export function outcome() {
  const element = h('div', { class: 'outcome', role: 'status', tabindex: '-1' });
  const set = (tone, ...content) => {
    element.dataset.tone = tone;
    element.replaceChildren(...content);
  };
  return {
    element,
    clear: () => set(''),
    show: (...content) => set('plain', ...content),
    good: (...content) => set('good', ...content),
    bad: (error) => {
      // What is told already is not announced again.
      if (element.dataset.tone !== 'bad' || element.textContent !== error.message) set('bad', error.message);
    },
  };
}

/** A block of configuration or the like, to be copied. */
export function copyable(text, label) {
  const block = h('pre', { tabindex: '0', 'aria-label': label, role: 'region' }, h('code', {}, text));
  const told = h('span', { role: 'status', class: 'told' });
  const copy = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text);
      told.textContent = 'Copied.';
    } catch {
      // Over plain http, browsers give scripts no clipboard but on loopback addresses.
      getSelection().selectAllChildren(block);
      told.textContent = 'Selected. Press Ctrl+C or ⌘C.';
    }
  }, { 'aria-label': `Copy: ${label}` });
  return h('div', { class: 'copyable' }, block, h('p', {}, copy, ' ', told));
}

/** Asks before something happens; whether it may. */
export function confirmed(question, detail, yes) {
  return new Promise((decide) => {
    const id = 'confirm-question';
    const dialog = h('dialog', { 'aria-labelledby': id },
      h('h2', { id }, question),
      detail,
      h('p', { class: 'buttons' },
        button(yes, () => dialog.close('yes'), { class: 'danger' }),
        button('Cancel', () => dialog.close('no'), { autofocus: true })));
    dialog.addEventListener('close', () => {
      dialog.remove();
      decide(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Saves a value as a file of JSON. */
export function download(name, value) {
  const text = `${JSON.stringify(value, null, 2)}\n`;
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = h('a', { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}

/** Calls `load` now and then every `seconds` while the tab is seen; the function that ends it. */
export function every(seconds, load) {
  let timer;
  let isOver = false;
  const run = async () => {
    if (!document.hidden) await load();
    if (!isOver) timer = setTimeout(run, seconds * 1000);
  };
  run();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
