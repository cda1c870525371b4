// Talks to the administration interface: JSON over fetch, and errors in words.

// Longer than the proxy lets a command take.
const PATIENCE_MS = 65_000;

/** A request that was refused or failed; the message is for the reader. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let loggedOut = () => {};

/** Sets what happens when the proxy asks for a login. */
export function onLoggedOut(then) {
  loggedOut = then;
}

export const get = (path) => call(path, { method: 'GET' });

/** The field tells the proxy that a script of its own page asks. */
export const post = (path, body) =>
  call(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Anteroom-Admin': '1' },
    body: JSON.stringify(body ?? {}),
  });

/** Exchanges a token for a session; the answer's status. */
export async function logIn(token) {
  const answer = await send('/login', { method: 'POST', body: new URLSearchParams({ token }) });
  if (answer.ok) return;
  if (answer.status === 401) throw new Refused(401, 'The proxy does not know this token.');
  if (answer.status === 429) {
    const wait = answer.headers.get('Retry-After') ?? '60';
    throw new Refused(429, `There were too many wrong tokens. Try again in ${wait} s.`);
  }
  throw new Refused(answer.status, await words(answer));
}

async function call(path, how) {
  const answer = await send(path, how);
  if (answer.status === 401) loggedOut();
  if (!answer.ok) throw new Refused(answer.status, await words(answer));
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

async function send(path, how) {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  try {
    return await fetch(path, { ...how, signal, cache: 'no-store', credentials: 'same-origin' });
  } catch {
    throw new Refused(0, 'The proxy did not answer. It may be stopped, or out of reach.');
  }
}

/** What the proxy says about a refusal. */
async function words(answer) {
  const text = await answer.text().catch(() => '');
  let error = text.slice(0, 300);
  try {
    error = JSON.parse(text).error ?? error;
  } catch {
    // The proxy's own refusals are JSON; what stands between may say anything.
  }
  if (answer.status === 401) return 'The session is over. Log in.';
  if (answer.status === 404) return 'This proxy does not have this figure. Its version may be older.';
  return `The proxy refused (${answer.status}): ${error || 'without a reason'}`;
}
