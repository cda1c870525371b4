// A screen that reads one path again and again, and shows what it says.

import { get } from './api.js';
import { every, outcome, section } from './dom.js';

/**
 * heading, help  what stands above
 * refresh        seconds between two readings
 * make(context)  the elements of the screen, and how they show a reading. The context has what the role may do (`can`),
 *                the place of outcomes (`told`), and what reads again at once (`reload`)
 */
export function reading({ id, title, heading, help, path, refresh, make }) {
  return {
    id,
    title,
    build({ can }) {
      const told = outcome();
      const reload = async () => show(await get(path));
      const { elements, show } = make({ can, told, reload });
      const close = every(refresh, async () => {
        try {
          await reload();
          // What came of a click stays until the next one.
          if (told.element.dataset.tone === 'bad') told.clear();
        } catch (error) {
          told.bad(error);
        }
      });
      return { element: section(heading, help, told.element, ...elements), close };
    },
  };
}
