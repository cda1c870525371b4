// A table whose rows are kept while their figures change: focus, selection and opened rows stay.
//
// Where it is too wide for its place, the style sheet shows each row as a card. The roles are written out, because
// browsers drop them from tables that are not laid out as such.

import { button, h, setText } from './dom.js';

/** A place that is narrower, in pixels, has cards whatever the table is. */
const CARDS_BELOW = 640;

/**
 * columns  {title, text(row), by(row) (to sort), tone(row), number, long, short}; the first names the row
 * key      what tells rows apart
 * empty    what is said without rows
 * detail   what a row opens to, if anything: an element, or {element, update(row)} where it follows the row
 * sort     the place of the column to sort by at first, the greatest first
 */
export class Table {
  #columns;
  #key;
  #detail;
  #sort;
  #rows = new Map();
  #latest = [];
  #body = h('tbody', { role: 'rowgroup' });
  #empty;
  #heads;
  #table;
  /** How wide the table was when it was too wide. */
  #needed = 0;

  constructor({ caption, columns, key, empty, detail, sort }) {
    this.#columns = columns;
    this.#key = key;
    this.#detail = detail;
    this.#sort = sort === undefined ? null : { place: sort, down: true };
    this.#heads = columns.map((column, place) => this.#head(column, place));
    const isSortable = columns.some((column) => column.by);
    this.#table = h('table', { role: 'table', class: isSortable ? 'sortable' : null },
      h('caption', {}, caption),
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...this.#heads)), this.#body);
    this.#empty = h('p', { class: 'empty' }, empty);
    this.element = h('div', { class: 'table' }, this.#table, this.#empty);
    this.#table.hidden = true;
    new ResizeObserver(() => this.#fit()).observe(this.element);
    this.#showOrder();
  }

  /** Shows these rows, and no others. */
  update(rows) {
    this.#latest = rows;
    this.#table.hidden = rows.length === 0;
    this.#empty.hidden = rows.length > 0;
    const keys = new Set(rows.map(this.#key));
    for (const [key, shown] of this.#rows) {
      if (keys.has(key)) continue;
      shown.line.remove();
      shown.opened?.remove();
      this.#rows.delete(key);
    }
    for (const row of rows) this.#show(row);
    // Rows do not move from under the pointer or the focus.
    const isInUse = this.#body.matches(':hover') || this.#body.contains(document.activeElement);
    if (!isInUse) this.#arrange();
    this.#fit();
  }

  /** Makes cards of the rows where the table is too wide for its place. */
  #fit() {
    const place = this.element.clientWidth;
    // Not in the page yet: nothing is too wide.
    if (place === 0) return;
    const isNarrow = place < Math.max(CARDS_BELOW, this.#needed);
    this.#table.classList.toggle('cards', isNarrow);
    if (isNarrow || this.#table.offsetWidth <= place) return;
    this.#needed = this.#table.offsetWidth;
    this.#table.classList.add('cards');
  }

  #head(column, place) {
    const inside = column.by
      ? button(column.title, () => this.#sortBy(place), { class: 'sort' })
      : column.title;
    return h('th', { scope: 'col', role: 'columnheader', class: kind(column) }, inside);
  }

  #sortBy(place) {
    const down = this.#sort?.place === place ? !this.#sort.down : true;
    this.#sort = { place, down };
    this.#showOrder();
    this.#arrange();
  }

  #showOrder() {
    this.#heads.forEach((head, place) => {
      if (!this.#columns[place].by) return;
      const isIt = this.#sort?.place === place;
      const order = this.#sort?.down ? 'descending' : 'ascending';
      head.setAttribute('aria-sort', isIt ? order : 'none');
    });
  }

  #show(row) {
    const key = this.#key(row);
    const shown = this.#rows.get(key) ?? this.#add(key, row);
    shown.row = row;
    this.#columns.forEach((column, place) => {
      const text = shown.texts[place];
      setText(text, column.text(row));
      if (column.tone) text.dataset.tone = column.tone(row);
    });
    shown.follow?.(row);
  }

  #add(key, row) {
    const shown = { row, texts: [], line: h('tr', { role: 'row' }), opened: null, follow: null };
    this.#columns.forEach((column, place) => {
      const isFirst = place === 0;
      const attributes = isFirst ? { scope: 'row', role: 'rowheader' } : { role: 'cell' };
      const cell = h(isFirst ? 'th' : 'td',
        { ...attributes, class: kind(column), 'data-label': column.title });
      if (isFirst && this.#detail) {
        const toggle = button('', () => this.#toggle(shown, toggle), {
          class: 'open', 'aria-expanded': 'false',
        });
        shown.texts[place] = toggle;
        cell.append(toggle);
      } else {
        shown.texts[place] = h('span', {});
        cell.append(shown.texts[place]);
      }
      shown.line.append(cell);
    });
    this.#rows.set(key, shown);
    this.#body.append(shown.line);
    return shown;
  }

  #toggle(shown, toggle) {
    if (shown.opened) {
      shown.opened.remove();
      shown.opened = null;
      shown.follow = null;
    } else {
      const made = this.#detail(shown.row);
      shown.follow = made.update;
      const cell = h('td', { role: 'cell', colspan: this.#columns.length }, made.element ?? made);
      shown.opened = h('tr', { role: 'row', class: 'opened' }, cell);
      shown.line.after(shown.opened);
    }
    toggle.setAttribute('aria-expanded', String(shown.opened !== null));
  }

  #arrange() {
    const order = this.#sort ? this.#latest.toSorted(this.#compare()) : this.#latest;
    let place = this.#body.firstElementChild;
    for (const row of order) {
      const { line, opened } = this.#rows.get(this.#key(row));
      for (const element of opened ? [line, opened] : [line]) {
        if (element === place) place = place.nextElementSibling;
        else this.#body.insertBefore(element, place);
      }
    }
  }

  #compare() {
    const { place, down } = this.#sort;
    const { by } = this.#columns[place];
    const sign = down ? -1 : 1;
    return (one, other) => {
      const [a, b] = [by(one), by(other)];
      // What is not known comes last in both orders.
      if (a == null || b == null) return (a == null) - (b == null);
      return sign * (typeof a === 'string' ? a.localeCompare(b) : a - b);
    };
  }
}

const kind = ({ number, long, short }) => (number ? 'number' : long ? 'long' : short ? 'short' : null);
