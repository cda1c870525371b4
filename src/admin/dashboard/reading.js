// A screen that reads one path again and again, and shows what it says.

import { get } from './api.js';
import { every, outcome, section } from './dom.js';

/**
 * heading, help  what stands above
 * refresh        seconds between two readings
 * make()         the elements of the screen, and how they show a reading
 */
export function reading({ id, title, heading, help, path, refresh, make }) {
  return {
    id,
    title,
    build() {
      const told = outcome();
      const { elements, show } = make();
      const close = every(refresh, async () => {
        try {
          show(await get(path));
          told.clear();
        } catch (error) {
          told.bad(error);
        }
      });
      return { element: section(heading, help, told.element, ...elements), close };
    },
  };
}
