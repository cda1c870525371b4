// Numbers, times and sizes as text.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const NONE = '–';

/** A number and its unit stay on one line. */
const unit = (value, name) => `${short.format(value)}\u00a0${name}`;

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? whole.format(value) : NONE);

/** A number of things: `1 page`, `3 pages`. */
export const counted = (value, one) => `${count(value)} ${one}${value === 1 ? '' : 's'}`;

/** A rate: exact where it is small. */
export const rate = (value) => {
  if (!isNumber(value)) return NONE;
  return Math.abs(value) >= 100 ? whole.format(value) : short.format(value);
};

/** A share from 0 to 1. It says 100 % only if it is all. */
export const percent = (share) => {
  if (!isNumber(share)) return NONE;
  const hundredths = share * 100;
  if (hundredths > 99.9 && share < 1) return '> 99.9 %';
  return `${hundredths >= 99.95 || hundredths === 0 ? whole.format(hundredths) : hundredths.toFixed(1)} %`;
};

/** A length of time in its fitting unit. */
export const seconds = (value) => {
  if (value === Infinity) return 'over 10 s';
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 0.001) return unit(value * 1e6, 'µs');
  if (size < 1) return unit(value * 1e3, 'ms');
  if (size < 120) return unit(value, 's');
  if (size < 7200) return unit(Math.round(value / 60), 'min');
  if (size < 172_800) return unit(value / 3600, 'h');
  return unit(value / 86_400, 'days');
};

export const bytes = (value) => {
  if (!isNumber(value)) return NONE;
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let place = 0;
  let size = value;
  while (size >= 1024 && place < units.length - 1) {
    size /= 1024;
    place += 1;
  }
  return `${place === 0 ? whole.format(size) : short.format(size)} ${units[place]}`;
};

/** How long before `now` (Unix seconds) this was. */
export const ago = (at, now = Date.now() / 1000) => {
  if (!isNumber(at)) return 'never';
  const passed = Math.max(0, now - at);
  return passed < 1 ? 'now' : `${seconds(Math.floor(passed))}\u00a0ago`;
};

const two = (value) => String(value).padStart(2, '0');

/** A Unix time on the reader's clock. */
export const time = (at) => {
  if (!isNumber(at)) return NONE;
  const date = new Date(at * 1000);
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join('-');
  return `${day} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':')}`;
};

/** A text without the values of queries in it: they may be secrets. */
export const withoutQueryValues = (text) =>
  String(text).replace(/([?&][^=&\s"]*=)[^&\s"]+/g, '$1…');

/** A string as TOML writes it. */
export const tomlString = (text) =>
  JSON.stringify(text).replace(/\u007f/g, '\\u007f');
