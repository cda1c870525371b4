//! The scripts: steps that must look before they write, each atomic on the server.
//!
//! A plain pipeline costs Redis less (a script 1.3 to 1.5 times as much), so that steps which
//! need no look are none. Sent by hash; redis-rs loads a script that the server does not know.

use std::sync::LazyLock;

use redis::Script;

use super::purges::NONCES;
use crate::store::PER_USER_MAX;
use crate::store::purge::MARKS;

/// Whether a member of `recent:` is a token by the grammar: see [`crate::ident::is_token`].
const IS_TOKEN: &str = r#"
local function is_token(token)
  return #token >= 8 and #token <= 256 and not string.find(token, '[^!-~]')
    and not string.find(token, '[;,"\\{}]')
end"#;

/// `name_of(user)`: the name of a user as `login:` holds him, without his attributes: see
/// [`crate::ident::User`].
const NAME_OF: &str = r"
local function name_of(user)
  return user and string.match(user, '^[^%z]*')
end";

/// `ended(user, recent, noted, token, index, now, idle, absolute)`: whether a session is over. `index`
/// stands before a name in the index of its sessions, `noted` is `since:`, and the last two say how long a
/// session may be idle and may last; empty: for ever. `since` is when it began, where that matters.
const ENDED: &str = r"
local since
local function ended(user, recent, noted, token, index, now, idle, absolute)
  if idle ~= '' then
    local seen = tonumber(redis.call('ZSCORE', recent, token) or '')
    if seen and now - seen >= tonumber(idle) then return true end
  end
  if absolute ~= '' then
    since = redis.call('ZSCORE', index .. name_of(user), token)
      or redis.call('ZSCORE', noted, token)
    return since and now - tonumber(since) >= tonumber(absolute)
  end
  return false
end";

/// The user of a token whose session is not over, and since when he is known.
///
/// KEYS: `login:`, `recent:`, `since:`. ARGV: token, what stands before a name in the index of its sessions,
/// the time, how long a session may be idle and may last, and 1 where it may be noted that it was seen. An
/// app that ends sessions itself does not end what was noted: for each that is noted some are looked at.
pub(super) static LIVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{ENDED}
local user = redis.call('HGET', KEYS[1], ARGV[1])
if not user then return {{}} end
local now = tonumber(ARGV[3])
if ended(user, KEYS[2], KEYS[3], ARGV[1], ARGV[2], now, ARGV[4], ARGV[5]) then return {{}} end
if ARGV[5] ~= '' and not since then
  since = ARGV[3]
  if ARGV[6] == '1' then
    redis.pcall('ZADD', KEYS[3], 'NX', since, ARGV[1])
    local some = redis.pcall('ZRANDMEMBER', KEYS[3], 4)
    for _, token in ipairs(some) do
      if redis.call('HEXISTS', KEYS[1], token) == 0 then redis.pcall('ZREM', KEYS[3], token) end
    end
  end
end
return {{user, since or ''}}
"
    ))
});

/// A log-in, or a visit as the book has it: `update_token`.
///
/// KEYS: `login:`, `recent:`, `since:`, and with an item `viewed:<token>` and `viewed:`. ARGV: token, user,
/// time, what stands before a name in the index of its sessions, and with an item that and the rank of the
/// last that is not kept.
pub(super) static UPDATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}
local token, user, now, index = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local before = redis.call('HGET', KEYS[1], token)
redis.call('HSET', KEYS[1], token, user)
redis.call('ZADD', KEYS[2], 'GT', now, token)
if before and name_of(before) ~= name_of(user) then
  redis.call('ZREM', index .. name_of(before), token)
  before = nil
end
redis.call('ZADD', index .. name_of(user), 'NX',
  before and redis.call('ZSCORE', KEYS[3], token) or now, token)
redis.call('ZREM', KEYS[3], token)
if ARGV[5] then
  redis.call('ZADD', KEYS[4], 'GT', now, ARGV[5])
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, ARGV[6])
  redis.call('ZINCRBY', KEYS[5], -1, ARGV[5])
end
"
    ))
});

/// A log-out. KEYS: `login:`, `recent:`, `since:`, `viewed:<token>` and `cart:<token>`. ARGV: token, what
/// stands before a name in the index of its sessions, and the channel on which it is told.
pub(super) static REVOKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}
local token = ARGV[1]
local user = redis.call('HGET', KEYS[1], token)
redis.call('HDEL', KEYS[1], token)
redis.call('ZREM', KEYS[2], token)
redis.call('ZREM', KEYS[3], token)
redis.call('UNLINK', KEYS[4], KEYS[5])
if user then redis.call('ZREM', ARGV[2] .. name_of(user), token) end
redis.pcall('PUBLISH', ARGV[3], token)
return 1
"
    ))
});

/// Renews the sessions of visits, each only where `login:` still holds that user.
///
/// KEYS: `login:`, `recent:`, then `viewed:<token>` of each visit. ARGV: how many items to keep,
/// then for each visit: token, user, time, number of items, and their times and ids.
/// Returns a digit for each visit: 1 where it was that user's. One text costs less than an array.
pub(super) static TOUCH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}
local keep, at, held = tonumber(ARGV[1]), 2, {{}}
for visit = 3, #KEYS do
  local token, user, seen, items = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  if name_of(redis.call('HGET', KEYS[1], token)) == name_of(user) then
    held[visit - 2] = '1'
    redis.call('ZADD', KEYS[2], 'GT', seen, token)
    if items > 0 then
      -- pcall: one key that is no ZSET must not hold up the visits behind it.
      redis.pcall('ZADD', KEYS[visit], 'GT', unpack(ARGV, at, at + 2 * items - 1))
      redis.pcall('ZREMRANGEBYRANK', KEYS[visit], 0, -keep - 1)
    end
  else
    held[visit - 2] = '0'
  end
  at = at + 2 * items
end
return table.concat(held)
"
    ))
});

/// `cart_in(key)`: what stands in a cart as JSON, or nothing; what is no item or no count is left out,
/// as it is where a cart is read. `most` is the most items: of a cart that another program has filled
/// only some are looked at.
const CART_IN: &str = r#"
local function is_item(item)
  if #item == 0 or #item > 128 or string.find(item, '%c') then return false end
  if not string.find(item, '[\128-\255]') then return true end
  -- What is UTF-8 becomes a letter each, in place.
  item = string.gsub(item, '[\194-\223][\128-\191]', 'x')
  item = string.gsub(item, '[\224-\239][\128-\191][\128-\191]', 'x')
  item = string.gsub(item, '[\240-\244][\128-\191][\128-\191][\128-\191]', 'x')
  return not string.find(item, '[\128-\255]')
end
local function whole(count)
  local sign, digits = string.match(count, '^([+-]?)0*(%d+)$')
  if not digits or #digits > 18 then return nil end
  if sign == '-' and digits ~= '0' then return '-' .. digits end
  return digits
end
local function cart_in(key, most)
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' or size == 0 then return nil end
  local held
  if size > most then
    held = redis.call('HSCAN', key, 0, 'COUNT', 2 * most)[2]
  else
    held = redis.call('HGETALL', key)
  end
  local items = {}
  for of = 1, #held, 2 do
    local count = whole(held[of + 1])
    if #items < most and count and is_item(held[of]) then
      local is_text, item = pcall(cjson.encode, held[of])
      if is_text then
        items[#items + 1] = '{"item":' .. item .. ',"count":' .. count .. '}'
      end
    end
  end
  if #items == 0 then return nil end
  return '[' .. table.concat(items, ',') .. ']'
end"#;

/// `views_in(key, most)`: what stands in `viewed:<token>` as JSON, the newest first; what is no item or no time
/// is left out.
const VIEWS_IN: &str = r#"
local function views_in(key, most)
  local held = redis.pcall('ZREVRANGE', key, 0, most - 1, 'WITHSCORES')
  if held.err then return '[]' end
  local views = {}
  for of = 1, #held, 2 do
    local seen = tonumber(held[of + 1])
    if seen and seen > -1e15 and seen < 1e15 and is_item(held[of]) then
      local is_text, item = pcall(cjson.encode, held[of])
      if is_text then
        views[#views + 1] = '{"item":' .. item .. ',"viewed":' .. held[of + 1] .. '}'
      end
    end
  end
  return '[' .. table.concat(views, ',') .. ']'
end"#;

/// What is told of a cart. `user` is what `login:` holds, if anything: see [`crate::ident::User`], also for
/// what is unconfirmed.
///
/// `record_of(why, id, user, seen, cart, views)`: as it stands in the outbox, or waits for its receiver.
/// `tell(how, keep, …)`: tells of it on the stream or to the queue, which have `keep` entries; what Redis says.
/// `dropped` counts what went for that.
const TELL: &str = r#"
local dropped = 0
local function is_confirmed(user)
  return user and not string.find(user .. '\0', '%z%?%z') and 'true' or 'false'
end
local function record_of(why, id, user, seen, cart, views)
  local is_text, name = pcall(cjson.encode, name_of(user) or '')
  if not user or not is_text then name = 'null' end
  return '{"id":"' .. id .. '","user":' .. name .. ',"confirmed":' .. is_confirmed(user)
    .. ',"seen":"' .. seen .. '","cart":' .. cart .. ',"viewed":' .. views
    .. ',"why":"' .. why .. '"}'
end
local function tell(how, keep, why, id, user, seen, cart, views)
  if how == 'stream' then
    return redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', keep, '*', 'id', id,
      'user', name_of(user) or '', 'seen', seen, 'cart', cart, 'viewed', views,
      'confirmed', is_confirmed(user), 'why', why)
  end
  local told = redis.pcall('RPUSH', KEYS[6], record_of(why, id, user, seen, cart, views))
  if type(told) == 'number' and told > tonumber(keep) then
    redis.call('LPOP', KEYS[6])
    dropped = dropped + 1
  end
  return told
end"#;

/// Parts with sessions, each only where it was not seen again and is over the limit: removes it with
/// all that it has, and hands on its cart. All that may be refused for want of memory comes first.
///
/// KEYS: `login:`, `recent:`, `expired:`, `expiring:`, `since:`, `cartevents:`. ARGV: how many to keep, what
/// stands before a token in the names of its views and of its cart, what becomes of those with a cart
/// (`keep`, `stream`, `outbox`, `queue`), how many entries the stream or the queue keeps, the most items of a
/// cart, the bytes after which it ends early, what stands before a name in the index of its sessions, the
/// time before which who was seen is over the limit anyway, the most views told, and for each session its
/// token, time and id (empty: it is no token). Returns how many it removed, handed on, dropped and left,
/// whether it ended early, and what refused the carts.
pub(super) static EVICT_EXPIRING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{OVER}{UNINDEX}{CART_IN}{VIEWS_IN}{TELL}
local viewed, carts, how, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local over, room = over_limit(KEYS[2], ARGV[1], ARGV[9]), tonumber(ARGV[7])
if how == 'outbox' and redis.call('EXISTS', KEYS[4]) == 1 then how = 'keep' end
local gone, doomed, boxed, records = {{}}, {{}}, {{}}, {{}}
local handed, left, more, refusal = 0, 0, 0, ''
local function remove(token)
  gone[#gone + 1] = token
  doomed[#doomed + 1] = viewed .. token
  doomed[#doomed + 1] = carts .. token
end
for at = 11, #ARGV, 3 do
  local token, id = ARGV[at], ARGV[at + 2]
  local seen = redis.call('ZSCORE', KEYS[2], token)
  local is_due = seen and tonumber(seen) == tonumber(ARGV[at + 1])
    and redis.call('ZRANK', KEYS[2], token) < over
  if is_due and id == '' then
    gone[#gone + 1] = token
  elseif is_due and how == 'keep' then
    if redis.call('EXISTS', carts .. token) == 1 then left = left + 1 else remove(token) end
  elseif is_due then
    local cart = cart_in(carts .. token, most)
    if not cart then
      remove(token)
    else
      local user = redis.call('HGET', KEYS[1], token)
      local views = views_in(viewed .. token, ARGV[10])
      if how == 'outbox' then
        boxed[#boxed + 1] = token
        records[#records + 1] = record_of('expired', id, user, seen, cart, views)
      else
        local told = tell(how, ARGV[5], 'expired', id, user, seen, cart, views)
        if type(told) == 'table' and told.err then
          refusal, how, left = told.err, 'keep', left + 1
        else
          handed = handed + 1
          remove(token)
        end
      end
      room = room - #cart - #views
    end
    if room <= 0 then
      more = 1
      break
    end
  end
end
if #records > 0 then
  local told = redis.pcall('RPUSH', KEYS[4], unpack(records))
  if type(told) == 'table' and told.err then
    refusal, left = told.err, left + #boxed
  else
    handed = #boxed
    for _, token in ipairs(boxed) do remove(token) end
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
if #gone > 0 then
  unindex(KEYS[1], KEYS[5], ARGV[8], gone)
  redis.call('HDEL', KEYS[1], unpack(gone))
  redis.call('ZREM', KEYS[2], unpack(gone))
end
return {{#gone, handed, dropped, left, more, refusal}}
"
    ))
});

/// `is_behind(one, other)`: whether a member stands behind another of the same time. Redis goes by their bytes,
/// and Lua's `<` does not.
const IS_BEHIND: &str = r"
local function is_behind(one, other)
  for at = 1, math.min(#one, #other) do
    local byte, byte_of_other = string.byte(one, at), string.byte(other, at)
    if byte ~= byte_of_other then return byte > byte_of_other end
  end
  return #one > #other
end";

/// Sessions behind those of which it has been told that they are idle, with their times.
///
/// KEYS: `recent:`, `cartidle:`. ARGV: how many, the time, and the time of the newest. Returns what `cartidle:`
/// holds, too: the time up to which all have been told of; or, where of that time some are left, the last who
/// was, behind a space. The place among members of one time is found by halves, however many there are.
///
/// Returns then by how much our clock is behind that of Redis, which is right where they differ by more than
/// some seconds; and whether `cartidle:` held a time to come, and was set back.
pub(super) static IDLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{IS_BEHIND}
local mark, from = redis.call('GET', KEYS[2]) or '', 0
local seen, token = string.match(mark, '^(%S+) (.*)$')
local time = redis.call('TIME')
local behind, set_back = time[1] + time[2] / 1e6 - ARGV[2], 0
if math.abs(behind) <= 5 then behind = 0 end
local told = tonumber(seen or mark)
if told and told > ARGV[2] + behind then
  mark, seen, set_back = string.format('%.6f', ARGV[3] + behind), nil, 1
  -- First what takes no room: so a Redis that is full lets it through.
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], mark)
end
if seen then
  local to = redis.call('ZCOUNT', KEYS[1], '-inf', seen)
  from = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. seen)
  while from < to do
    local mid = math.floor((from + to) / 2)
    if is_behind(redis.call('ZRANGE', KEYS[1], mid, mid)[1], token) then
      to = mid
    else
      from = mid + 1
    end
  end
elseif mark ~= '' then
  from = redis.call('ZCOUNT', KEYS[1], '-inf', mark)
end
local found = redis.call('ZRANGE', KEYS[1], from, from + ARGV[1] - 1, 'WITHSCORES')
return {{mark, found, string.format('%.6f', behind), set_back}}
"
    ))
});

/// Hands on the carts of idle sessions, each only where it was not seen again, and says up to which.
///
/// KEYS: `login:`, `recent:`, `expired:`, `expiring:`, `cartidle:`, `cartevents:`. ARGV: what `cartidle:` held
/// when these were found: else another was faster, and nothing is done; then as for [`EVICT_EXPIRING`], with
/// the length of the queue from which on carts wait in place of the time. Returns how many it handed on,
/// whether it came to the end (1), ended early (2) or may not go on (0), and what refused the carts.
pub(super) static TELL_IDLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{CART_IN}{VIEWS_IN}{TELL}{IS_BEHIND}
local viewed, carts, how, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local room, full = tonumber(ARGV[7]), tonumber(ARGV[9])
if (redis.call('GET', KEYS[5]) or '') ~= ARGV[1] then return {{0, 0, ''}} end
if how == 'outbox' and redis.call('EXISTS', KEYS[4]) == 1 then return {{0, 0, ''}} end
local records, handed, goes_on, refusal, up_to = {{}}, 0, 1, '', nil
for at = 11, #ARGV, 3 do
  local token, id = ARGV[at], ARGV[at + 2]
  local seen = id ~= '' and redis.call('ZSCORE', KEYS[2], token)
  local cart = seen and tonumber(seen) == tonumber(ARGV[at + 1]) and cart_in(carts .. token, most)
  if cart then
    if how == 'queue' and redis.call('LLEN', KEYS[6]) >= full then
      goes_on = 0
      break
    end
    local user = redis.call('HGET', KEYS[1], token)
    local views = views_in(viewed .. token, ARGV[10])
    if how == 'outbox' then
      records[#records + 1] = record_of('idle', id, user, seen, cart, views)
    else
      local told = tell(how, ARGV[5], 'idle', id, user, seen, cart, views)
      if type(told) == 'table' and told.err then
        refusal, goes_on = told.err, 0
        break
      end
    end
    handed = handed + 1
    room = room - #cart - #views
  end
  up_to = at
  if room <= 0 then
    goes_on = 2
    break
  end
end
if #records > 0 then
  local told = redis.pcall('RPUSH', KEYS[4], unpack(records))
  if type(told) == 'table' and told.err then return {{0, 0, told.err}} end
end
if up_to then
  local token, mark = ARGV[up_to], ARGV[up_to + 1]
  -- Nothing may mention a token when its session is gone: it stands here only while it must.
  local last = redis.call('ZREVRANGEBYSCORE', KEYS[2], mark, mark, 'LIMIT', 0, 1)[1]
  if last and is_behind(last, token) then mark = mark .. ' ' .. token end
  local told = redis.pcall('SET', KEYS[5], mark)
  if told.err then return {{handed, 0, told.err}} end
end
return {{handed, goes_on, refusal}}
"
    ))
});

/// Removes an event, by what it is: it may be elsewhere by now, or gone. Mostly it is the first, and nothing is
/// searched. KEYS: `cartevents:`. ARGV: the event.
pub(super) static REMOVE_EVENT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('LINDEX', KEYS[1], 0) == ARGV[1] then
  redis.call('LPOP', KEYS[1])
  return 1
end
return redis.call('LREM', KEYS[1], 1, ARGV[1])
",
    )
});

/// Puts the first event behind all others, if it is this one. KEYS: `cartevents:`. ARGV: the event, and what
/// it becomes. It begins with a write that takes no room: so a Redis that is full lets it through.
pub(super) static PUT_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then return 0 end
redis.call('LPOP', KEYS[1])
redis.call('RPUSH', KEYS[1], ARGV[2])
return 1
",
    )
});

/// `over_limit(recent, keep, before)`: how many of the oldest sessions have to go: those that are too many,
/// and those that were last seen before that time.
const OVER: &str = r"
local function over_limit(recent, keep, before)
  local over = redis.call('ZCARD', recent) - tonumber(keep)
  if tonumber(before) > 0 then
    over = math.max(over, redis.call('ZCOUNT', recent, '-inf', '(' .. before))
  end
  return over
end";

/// `unindex(login, since, index, tokens)`: takes sessions out of the indexes, while `login:` has them.
const UNINDEX: &str = r"
local function unindex(login, since, index, tokens)
  local users = redis.call('HMGET', login, unpack(tokens))
  for at, token in ipairs(tokens) do
    if users[at] then redis.call('ZREM', index .. name_of(users[at]), token) end
  end
  redis.call('ZREM', since, unpack(tokens))
end";

/// What has waited longest in the outbox. KEYS: `expiring:`. ARGV: how many records, and the bytes after which it
/// ends early. Returns them, and how many there are in all.
pub(super) static OUTBOX: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local records, room = {}, tonumber(ARGV[2])
for at = 0, ARGV[1] - 1 do
  local record = room > 0 and redis.call('LINDEX', KEYS[1], at)
  if not record then break end
  records[#records + 1] = record
  room = room - #record
end
return {records, redis.call('LLEN', KEYS[1])}
",
    )
});

/// Removes from the outbox the batch that begins with this record.
///
/// KEYS: `expiring:`. ARGV: the first record, and how many there are.
pub(super) static CLEAR_OUTBOX: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then return 0 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
return 1
",
    )
});

/// Takes or keeps a turn. KEYS: `cleaner:` or `deliverer:`. ARGV: who, and for how many milliseconds. A Redis
/// that is full takes it all the same, for what is delivered makes room: a script that begins with a write
/// that takes none is let through.
pub(super) static TAKE_TURN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
",
    )
});

/// The ledger of bytes of pages, a HASH, and what is done with it. There is no index of pages: bytes are
/// booked under the time at which their page expires, in buckets of a second for pages that have two
/// minutes, of a minute for two hours, of an hour for three days, else of a day. `all` is the sum; what
/// is in a bucket whose time is over goes with it. So a page counts until shortly after it has expired.
///
/// `held(key)`: what a page of ours is booked with, and when it expires; what another program wrote is
/// not booked. Redis 7 tells that time as it was set. What is left of it, which is all that Redis 6 tells,
/// is counted from another reading of the clock than ours, and the sum may be another bucket's. `take` unbooks it. Which bucket that was depended on the time that it had, which nobody
/// knows any more: the smallest one comes first. Where it was another one, that holds too much now and
/// this one too little, of which this one ends first: until then the sum is right, from then on too high.
const PAGE_BYTES: &str = r"
local ledger, magic = KEYS[#KEYS], ARGV[1]
local beside = 256
local widths, reach = {1000, 60000, 3600000, 86400000}, {120, 120, 72, 3660}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = tonumber(redis.call('HGET', ledger, 'all') or '') or 0
local function bucket(level, at)
  return string.format('%d:%.0f', level, at)
end
local function held(key)
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' or size == 0 then return 0 end
  if redis.call('GETRANGE', key, 0, #magic - 1) ~= magic then return 0 end
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) ~= 'number' then ends = redis.call('PTTL', key) + now end
  if ends < now then return 0 end
  return size + beside, ends
end
local function book(charge, ends)
  for level, width in ipairs(widths) do
    local at = math.floor(ends / width)
    if at - math.floor(now / width) <= reach[level] then
      redis.call('HINCRBY', ledger, bucket(level, at), charge)
      break
    end
  end
  all = all + charge
end
local function take(charge, ends)
  for level, width in ipairs(widths) do
    if charge == 0 then break end
    local from = bucket(level, math.floor(ends / width))
    local booked = tonumber(redis.call('HGET', ledger, from) or '') or 0
    local part = math.min(booked, charge)
    if part == booked then
      redis.call('HDEL', ledger, from)
    elseif part > 0 then
      redis.call('HINCRBY', ledger, from, -part)
    end
    charge, all = charge - part, all - part
  end
end
";

/// Stores a page where there is room, and books it. Where it is refused, an older page of ours goes.
///
/// KEYS: `cache:<hash>`, `pagebytes:`. ARGV: what pages of ours begin with, the page, its time to live
/// in milliseconds, the bytes of pages that there may be, and those that there may be with this one where
/// it is new. Returns 0, or 1 where there are too many for a new one, 2 for any, 3 where Redis has no
/// room; and the bytes of pages.
pub(super) static PUT_PAGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{PAGE_BYTES}
local over, gone = {{}}, 0
local swept = tonumber(redis.call('HGET', ledger, 'swept') or '') or now
for level, width in ipairs(widths) do
  local first = math.floor(swept / width)
  local last = math.min(math.floor(now / width) - 1, first + reach[level] + 1)
  for at = first, last do
    local booked = tonumber(redis.call('HGET', ledger, bucket(level, at)) or '')
    if booked then
      over[#over + 1], gone = bucket(level, at), gone + booked
    end
  end
end
local charge, ends = #ARGV[2] + beside, now + tonumber(ARGV[3])
local before, ended = held(KEYS[1])
local sum = math.max(all - gone - before, 0) + charge
local told = 0
if before == 0 and sum > tonumber(ARGV[5]) then
  told = 1
elseif sum > tonumber(ARGV[4]) then
  told = 2
else
  -- First of all that is written: it may be refused.
  local set = redis.pcall('SET', KEYS[1], ARGV[2], 'PXAT', string.format('%.0f', ends))
  if type(set) == 'table' and set.err then
    if not string.find(set.err, 'OOM', 1, true) then return set end
    told = 3
  end
end
if told > 0 and before > 0 then redis.call('UNLINK', KEYS[1]) end
for _, field in ipairs(over) do redis.call('HDEL', ledger, field) end
all = all - gone
if before > 0 then take(before, ended) end
if told == 0 then book(charge, ends) end
-- pcall: refused where Redis has no room, and then nothing was written before it.
redis.pcall('HSET', ledger, 'all', string.format('%.0f', all), 'swept', string.format('%.0f', now))
return {{told, math.max(all, 0)}}
"
    ))
});

/// Removes pages, and unbooks them. KEYS: `cache:<hash>` of each, `pagebytes:`. ARGV: what pages of ours
/// begin with. Returns the bytes of pages.
pub(super) static DELETE_PAGES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{PAGE_BYTES}
for at = 1, #KEYS - 1 do
  local before, ended = held(KEYS[at])
  redis.call('UNLINK', KEYS[at])
  if before > 0 then take(before, ended) end
end
if redis.call('EXISTS', ledger) == 1 then
  redis.call('HSET', ledger, 'all', string.format('%.0f', all))
end
return math.max(all, 0)
"
    ))
});

/// Asks for the lease on a page. KEYS: `lease:<hash>`. ARGV: who, and for how many milliseconds.
/// Returns 1 where it is granted, 2 where another's fetch was for nobody else, else 0.
pub(super) static LEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local who = redis.call('GET', KEYS[1])
if who == 'unshareable' then return 2 end
if who and who ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
",
    )
});

/// Ends a lease. KEYS: `lease:<hash>`. ARGV: who, and 1 where others may have the page.
pub(super) static END_LEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], 'unshareable', 'PX', 1000)
end
return 1
",
    )
});

/// `join_visitor(visitors, visitor, viewed, carts, token, keep, most)`: gives what a visitor's token has to a
/// session, and removes the token. Returns whether there was anything. `viewed` and `carts` stand before a
/// token in the names of its views and its cart.
const JOIN_VISITOR: &str = r"
local function join_visitor(visitors, visitor, viewed, carts, token, keep, most)
  if redis.call('ZREM', visitors, visitor) == 0 then return false end
  local views, cart, own = viewed .. visitor, carts .. visitor, carts .. token
  -- pcall: what another program has put in the place of a session's keys must not keep anybody out.
  redis.pcall('ZUNIONSTORE', viewed .. token, 2, viewed .. token, views, 'AGGREGATE', 'MAX')
  redis.pcall('ZREMRANGEBYRANK', viewed .. token, 0, -keep - 1)
  local held, size = redis.pcall('HGETALL', cart), redis.pcall('HLEN', own)
  if not held.err and type(size) == 'number' then
    local pairs_of = {}
    for at = 1, #held, 2 do pairs_of[#pairs_of + 1] = {held[at], held[at + 1]} end
    table.sort(pairs_of, function(one, other) return one[1] < other[1] end)
    for _, pair in ipairs(pairs_of) do
      local item, count = pair[1], pair[2]
      local had = redis.call('HGET', own, item)
      if not had and size < most then
        redis.call('HSET', own, item, count)
        size = size + 1
      elseif had and (tonumber(had) or 0) < (tonumber(count) or 0) then
        redis.call('HSET', own, item, count)
      end
    end
  end
  redis.call('UNLINK', views, cart)
  return true
end";

/// Changes the cart of a visitor's token where that is there, or begins now.
///
/// KEYS: `visitors:`, `cart:<token>`. ARGV: token, 1 where it begins now, the time, the most items, 1 where the
/// cart is emptied, and items, each with its count. Returns as [`CHANGE_CART`].
pub(super) static CHANGE_VISITOR_CART: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{SET_CART}
if ARGV[2] ~= '1' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
local told = {{}}
if ARGV[5] == '1' then
  redis.call('UNLINK', KEYS[2])
else
  told = set_cart(KEYS[2], tonumber(ARGV[4]), 6)
end
if told ~= 1 then redis.call('ZADD', KEYS[1], 'GT', ARGV[3], ARGV[1]) end
return told
"
    ))
});

/// Records visits of visitors' tokens, each only where the token is there.
///
/// KEYS: `visitors:`, then `viewed:<token>` of each visit. ARGV: how many items to keep, then for each visit:
/// token, time, number of items, and their times and ids. Returns a digit for each visit, as [`TOUCH`].
pub(super) static TOUCH_VISITORS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local keep, at, held = tonumber(ARGV[1]), 2, {}
for visit = 2, #KEYS do
  local token, seen, items = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if redis.call('ZSCORE', KEYS[1], token) then
    held[visit - 1] = '1'
    redis.call('ZADD', KEYS[1], 'GT', seen, token)
    if items > 0 then
      redis.pcall('ZADD', KEYS[visit], 'GT', unpack(ARGV, at, at + 2 * items - 1))
      redis.pcall('ZREMRANGEBYRANK', KEYS[visit], 0, -keep - 1)
    end
  else
    held[visit - 1] = '0'
  end
  at = at + 2 * items
end
return table.concat(held)
",
    )
});

/// Gives what a visitor's token has to a session, where `login:` holds that user for it.
///
/// KEYS: `login:`, `visitors:`. ARGV: the session's token, user, the visitor's token, what stands before a token
/// in the names of its views and its cart, how many views are kept, and the most items of a cart. Returns 0
/// where the session is not his, 1 where there was nothing, 2 where it was done.
pub(super) static MERGE_VISITOR: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{JOIN_VISITOR}
if name_of(redis.call('HGET', KEYS[1], ARGV[1])) ~= name_of(ARGV[2]) then return 0 end
local done = join_visitor(KEYS[2], ARGV[3], ARGV[4], ARGV[5], ARGV[1], tonumber(ARGV[6]),
  tonumber(ARGV[7]))
return done and 2 or 1
"
    ))
});

/// Removes the visitors' tokens over the limit that were not seen for the longest, at most a batch.
///
/// KEYS: `visitors:`. ARGV: how many to keep, the batch, what stands before a token in the names of its views
/// and of its cart, and the time before which who was seen is over the limit anyway. Returns how many it
/// removed, and how many are left. Of a member that is no visitor's token nothing else is touched: see
/// [`crate::ident::VisitorToken`].
pub(super) static EVICT_VISITORS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{OVER}
local count = math.min(over_limit(KEYS[1], ARGV[1], ARGV[5]), tonumber(ARGV[2]))
local oldest = count > 0 and redis.call('ZRANGE', KEYS[1], 0, count - 1) or {{}}
local doomed = {{}}
for _, token in ipairs(oldest) do
  if #token == 66 and string.find(token, '^v,[0-9a-f]+$') then
    doomed[#doomed + 1] = ARGV[3] .. token
    doomed[#doomed + 1] = ARGV[4] .. token
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
if #oldest > 0 then redis.call('ZREM', KEYS[1], unpack(oldest)) end
return {{#oldest, redis.call('ZCARD', KEYS[1])}}
"
    ))
});

/// `dismiss(token, id, user)`: ends a session that can wait for nobody, with all that it has, and hands its cart on
/// where there is one; without an id it is lost. First what takes no room: so a Redis that is full lets the rest
/// through. `handed` and `lost` count, and `refusal` is why.
///
/// KEYS: `login:`, `recent:`, `expired:`, `expiring:`, `since:`, `cartevents:`. ARGV: what stands before a token
/// in the names of its views and of its cart, what becomes of a cart (`stream`, `outbox`, `queue`; `keep`: it is
/// lost; `none`: it goes), how many entries the stream or the queue keeps, the most items of a cart, the bytes
/// that a batch may have, what stands before a name in the index of its sessions, the most views told, and
/// the most records of the outbox.
const DISMISS_ONE: &str = r"
local viewed, carts, how, indexes = ARGV[1], ARGV[2], ARGV[3], ARGV[7]
local handed, lost, refusal = 0, 0, ''
local function hand_on(id, user, seen, cart, views)
  if how == 'keep' then return { err = 'carts are not handed on now' } end
  if how ~= 'outbox' then return tell(how, ARGV[4], 'expired', id, user, seen, cart, views) end
  local length = redis.pcall('LLEN', KEYS[4])
  if type(length) == 'number' and length >= tonumber(ARGV[9]) then
    return { err = 'too many carts wait for the file' }
  end
  return redis.pcall('RPUSH', KEYS[4], record_of('expired', id, user, seen, cart, views))
end
local function dismiss(token, id, user)
  local seen = how ~= 'none' and redis.call('ZSCORE', KEYS[2], token)
  local cart = seen and cart_in(carts .. token, tonumber(ARGV[5]))
  local views = cart and views_in(viewed .. token, ARGV[8])
  redis.call('UNLINK', viewed .. token, carts .. token)
  redis.call('HDEL', KEYS[1], token)
  redis.call('ZREM', KEYS[2], token)
  redis.call('ZREM', KEYS[5], token)
  if user then redis.call('ZREM', indexes .. name_of(user), token) end
  if not cart then return end
  local told = { err = 'its session began meanwhile' }
  if id then told = hand_on(id, user, seen, cart, views) end
  if type(told) == 'table' and told.err then
    refusal, lost = told.err, lost + 1
  else
    handed = handed + 1
  end
end";

/// Ends a session that its visitor has not ended. After what [`DISMISS_ONE`] says, ARGV: token, its id, and the
/// channel on which it is told. Returns how many carts were handed on, dropped and lost, and why.
pub(super) static DISMISS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{CART_IN}{VIEWS_IN}{TELL}{DISMISS_ONE}
dismiss(ARGV[10], ARGV[11], redis.call('HGET', KEYS[1], ARGV[10]))
redis.pcall('PUBLISH', ARGV[12], ARGV[10])
return {{handed, dropped, lost, refusal}}
"
    ))
});

/// A log-in that replaces a token.
///
/// KEYS: those of [`DISMISS_ONE`], `viewed:` and `cart:` of the new token, and, where there was an old one,
/// views and cart of the old. After its ARGV: new token and its id, user, time, how many sessions the user may
/// have (0: any number), the channel on which it is told who is nobody's any more, 1 where a cart without an
/// id may be lost, the old token (empty: none) and its id, `visitors:`, the token
/// that he had as a visitor (empty: none), and tokens with their ids. Returns the user's sessions
/// that had to go, how many carts were handed on, dropped and lost, and why; or nothing, where an id is missing.
/// Views and cart move where the old token had the same user, and the new one has none. What a token
/// without a user has left may be anybody's: it goes. The index is only as good as those who write
/// `login:`: what they have ended there is taken out where it is met.
pub(super) static ROTATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{IS_TOKEN}{CART_IN}{VIEWS_IN}{TELL}{DISMISS_ONE}{JOIN_VISITOR}
local token, user, now, most = ARGV[10], ARGV[12], ARGV[13], tonumber(ARGV[14])
local old, ids = ARGV[17], {{}}
for at = 21, #ARGV, 2 do ids[ARGV[at]] = ARGV[at + 1] end
local index = indexes .. name_of(user)
-- Whether the cart of somebody who may have to go would be lost for want of an id: then nothing is done.
local function lacks_id()
  local over = redis.call('ZCARD', index) + 1 - most
  if over <= 0 then return false end
  for _, one in ipairs(redis.call('ZRANGE', index, 0, {PER_USER_MAX} - 1)) do
    if over <= 0 then return false end
    if one ~= token and one ~= old and name_of(redis.call('HGET', KEYS[1], one)) == name_of(user) then
      if not ids[one] and redis.call('EXISTS', carts .. one) == 1 then return true end
      over = over - 1
    end
  end
  return false
end
if how ~= 'none' and most > 0 and ARGV[16] ~= '1' and lacks_id() then return false end
local taken = redis.call('HGET', KEYS[1], token)
if taken and name_of(taken) ~= name_of(user) then dismiss(token, ARGV[11], taken) end
if old ~= '' then
  local before = redis.call('HGET', KEYS[1], old)
  if name_of(before) == name_of(user) then
    for had = 9, 10 do
      if redis.call('EXISTS', KEYS[had]) == 1 then
        redis.call('RENAMENX', KEYS[had], KEYS[had - 2])
      end
    end
  end
  dismiss(old, ARGV[18], before)
end
redis.call('HSET', KEYS[1], token, user)
redis.call('ZADD', KEYS[2], 'GT', now, token)
redis.call('ZREM', KEYS[5], token)
redis.call('ZADD', index, now, token)
if ARGV[20] ~= '' then
  join_visitor(ARGV[19], ARGV[20], viewed, carts, token, tonumber(ARGV[8]), tonumber(ARGV[5]))
end
local gone = {{}}
local size = redis.call('ZCARD', index)
local looks = 4
if most > 0 and size > most then looks = {PER_USER_MAX} end
local oldest = size > 1 and redis.call('ZRANGE', index, 0, looks - 1) or {{}}
local held = #oldest > 0 and redis.call('HMGET', KEYS[1], unpack(oldest)) or {{}}
for at, one in ipairs(oldest) do
  if not held[at] or name_of(held[at]) ~= name_of(user) then
    redis.call('ZREM', index, one)
    size, held[at] = size - 1, false
  end
end
for at, one in ipairs(oldest) do
  if most == 0 or size <= most then break end
  if held[at] and one ~= token and is_token(one) then
    dismiss(one, ids[one], held[at])
    size, gone[#gone + 1] = size - 1, one
  end
end
local told = table.concat(gone, ' ')
if old ~= '' then told = told .. ' ' .. old end
if told ~= '' then redis.pcall('PUBLISH', ARGV[15], told) end
return {{gone, handed, dropped, lost, refusal}}
"
    ))
});

/// Remembers an answer about a visitor, unless something else is remembered than when it was asked for.
///
/// KEYS: `answer:<hash>`. ARGV: what was remembered (empty: nothing), the answer, and for how many
/// milliseconds. Returns 1 where it does.
pub(super) static REMEMBER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
",
    )
});

/// Removes the oldest sessions over the limit, at most a batch.
///
/// KEYS: `login:`, `recent:`, `since:`. ARGV: how many to keep, the batch, what stands before a token in
/// the names of its views and of its cart (empty: leave carts), what stands before a name in the index of
/// its sessions, and the time before which who was seen is over the limit anyway. Returns how many it
/// removed.
/// A member that is no token is removed from `login:` and `recent:` only: `viewed:` with nothing
/// behind it is the popularity set.
pub(super) static EVICT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{IS_TOKEN}{OVER}{UNINDEX}
local count = math.min(over_limit(KEYS[2], ARGV[1], ARGV[6]), tonumber(ARGV[2]))
if count <= 0 then return 0 end
local oldest = redis.call('ZRANGE', KEYS[2], 0, count - 1)
local doomed = {{}}
for _, token in ipairs(oldest) do
  if is_token(token) then
    doomed[#doomed + 1] = ARGV[3] .. token
    if ARGV[4] ~= '' then doomed[#doomed + 1] = ARGV[4] .. token end
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
unindex(KEYS[1], KEYS[3], ARGV[5], oldest)
redis.call('HDEL', KEYS[1], unpack(oldest))
redis.call('ZREM', KEYS[2], unpack(oldest))
return #oldest
"
    ))
});

/// `set_cart(cart, most, from)`: sets the counts of the items that stand in ARGV from there on; a count of 0 or
/// less takes the item out. Returns 1 where the cart would hold too many, and nothing is written, else the
/// cart, or 2 where another program has put so much into it that it is to be read with care.
const SET_CART: &str = r"
local function set_cart(cart, most, from)
  local size, grows = redis.call('HLEN', cart), false
  for at = from, #ARGV, 2 do
    local is_there = redis.call('HEXISTS', cart, ARGV[at]) == 1
    if tonumber(ARGV[at + 1]) > 0 then
      if not is_there then size, grows = size + 1, true end
    elseif is_there then
      size = size - 1
    end
  end
  if grows and size > most then return 1 end
  for at = from, #ARGV, 2 do
    if tonumber(ARGV[at + 1]) > 0 then
      redis.call('HSET', cart, ARGV[at], ARGV[at + 1])
    else
      redis.call('HDEL', cart, ARGV[at])
    end
  end
  if redis.call('HLEN', cart) > most then return 2 end
  return redis.call('HGETALL', cart)
end";

/// Changes a cart where `login:` still holds that user for its token, which counts as seen then.
///
/// KEYS: `login:`, `recent:`, `cart:<token>`, `since:`. ARGV: token, user (empty: whoever it is), the most
/// items, the time, 1 where the cart is emptied, what stands before a name in the index of its sessions, the
/// time that the terms go by, how long a session may be idle and may last, and items, each with its count.
/// Returns 0 where nobody or another is logged in, 1 where the cart would hold too many, else the cart, or 2 where
/// another program has put so much into it that it is to be read with care.
pub(super) static CHANGE_CART: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{NAME_OF}{ENDED}{SET_CART}
local user = redis.call('HGET', KEYS[1], ARGV[1])
if not user or (ARGV[2] ~= '' and name_of(ARGV[2]) ~= name_of(user)) then return 0 end
local now = tonumber(ARGV[7])
if ended(user, KEYS[2], KEYS[4], ARGV[1], ARGV[6], now, ARGV[8], ARGV[9]) then return 0 end
redis.call('ZADD', KEYS[2], 'GT', ARGV[4], ARGV[1])
if ARGV[5] == '1' then
  redis.call('UNLINK', KEYS[3])
  return {{}}
end
return set_cart(KEYS[3], tonumber(ARGV[3]), 10)
"
    ))
});

/// `rescale_viewed`, unless somebody did lately. The first look only begins a period.
///
/// KEYS: `viewed:`, `rescaled:`. ARGV: how many items to keep, the period in seconds, the time,
/// the period twice in milliseconds, what is left of each score, and how many items may be removed
/// in a step: others wait meanwhile. Returns 1 where it was done, 2 where there is more to remove.
pub(super) static RESCALE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local every, now = tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(redis.call('GET', KEYS[2]) or '')
local since = last and now - last
-- Clocks differ a little; one that was set back by a whole period begins anew.
if since and since < every and since > -every then return 0 end
local begins = not since or since < 0
local keep, most = tonumber(ARGV[1]), tonumber(ARGV[6])
if not begins and redis.call('ZCARD', KEYS[1]) - keep > most then
  redis.call('ZREMRANGEBYRANK', KEYS[1], -most, -1)
  return 2
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
if begins then return 0 end
redis.call('ZREMRANGEBYRANK', KEYS[1], keep, -1)
redis.call('ZINTERSTORE', KEYS[1], 1, KEYS[1], 'WEIGHTS', ARGV[5])
return 1
",
    )
});

/// What both scripts of purges begin with: `era`, `number`, `key` and `held` as the store has them, and
/// `is_new`, whether the era begins here. One does where there is none, where the table has been evicted,
/// and where what the asker knows is of a later era, not part of this history, or too long ago to tell: the
/// store was set back then, and numbers that pages carry may mean other purges. `KEYS`: `purges:`,
/// `purging:`, `purged:`. `ARGV`: era, number and nonce of the moment that the asker knows, a later era and
/// a key where one begins, and the channel.
///
/// The first write takes no memory. After it Redis lets a script go on where it has no room, and purges
/// need little: keys of a fixed size, and a bounded list.
static PURGE_ERA: LazyLock<String> = LazyLock::new(|| {
    format!(
        r"
redis.call('HDEL', KEYS[1], '')
local function place_of(number)
  return ({MARKS} + number % {NONCES}) * 8
end
local function nonce_of(number)
  if number == 0 then return '' end
  return redis.call('GETRANGE', KEYS[3], place_of(number), place_of(number) + 7)
end
local era, number, key, held = unpack(redis.call('HMGET', KEYS[1], 'era', 'number', 'key', 'held'))
era, number, held = tonumber(era or ''), tonumber(number or '') or 0, tonumber(held or '') or 0
local known_era, known = tonumber(ARGV[1]), tonumber(ARGV[2])
local is_new = not era or era < 1 or not key or known_era > era
if not is_new and number > 0 then is_new = redis.call('EXISTS', KEYS[3]) == 0 end
if not is_new and era == known_era and known > 0 then
  is_new = known > number or number - known >= {NONCES} or nonce_of(known) ~= ARGV[3]
end
if is_new then
  era, number, key, held = tonumber(ARGV[4]), 0, ARGV[5], 0
  redis.call('HSET', KEYS[1], 'era', era, 'number', 0, 'key', key, 'held', 0)
  redis.call('UNLINK', KEYS[2], KEYS[3])
  redis.pcall('PUBLISH', ARGV[6], 0)
end
"
    )
});

/// Counts a purge, keeps it among the last ones and in the table, and tells it; only where the asker
/// knows the era.
///
/// After what [`PURGE_ERA`] says, ARGV: how many purges are kept, and how many bytes of them, the purge's
/// nonce, and the marks. Returns the number, or 0.
pub(super) static PURGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{}
if era ~= known_era then return 0 end
number = number + 1
for at = 10, #ARGV do
  redis.call('BITFIELD', KEYS[3], 'SET', 'i64', '#' .. ARGV[at], number)
end
redis.call('SETRANGE', KEYS[3], place_of(number), ARGV[9])
local marks = table.concat(ARGV, ' ', 10)
local length = redis.call('RPUSH', KEYS[2], marks)
-- The first of a list is all of it: the one before may have been evicted.
held = length == 1 and #marks or held + #marks
while length > tonumber(ARGV[7]) or (held > tonumber(ARGV[8]) and length > 0) do
  held, length = held - #redis.call('LPOP', KEYS[2]), length - 1
end
redis.call('HSET', KEYS[1], 'number', number, 'held', held)
redis.pcall('PUBLISH', ARGV[6], number)
return number
",
        *PURGE_ERA
    ))
});

/// The purges since a moment.
///
/// KEYS: those of [`PURGE_ERA`], and `seen:`. After its ARGV: who asks, the most purges, and for how many
/// milliseconds who asked counts as living. Returns era and number, 1 where the table is to be read, the
/// purges, the nonce of the last of them, and the key.
pub(super) static PURGED_SINCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"{}
local lives, time = tonumber(ARGV[9]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What is known of a history that is not the store's is nothing.
local said = is_new and '0 0' or ARGV[1] .. ' ' .. ARGV[2]
redis.call('HSET', KEYS[4], ARGV[7], string.format('%s %.0f', said, now))
local went_back = false
if redis.call('HLEN', KEYS[4]) > 16 then
  local all = redis.call('HGETALL', KEYS[4])
  for at = 1, #all, 2 do
    local asked = tonumber(string.match(all[at + 1], '(%d+)$') or '') or 0
    if all[at] ~= 'began' and math.abs(now - asked) > lives then
      redis.call('HDEL', KEYS[4], all[at])
      went_back = went_back or asked > now
    end
  end
end
-- Since when all who ask are in here.
local began = tonumber(redis.call('HGET', KEYS[4], 'began') or '')
if is_new or went_back or not began or began > now then
  redis.call('HSET', KEYS[4], 'began', string.format('%.0f', now))
end
redis.call('PEXPIRE', KEYS[4], lives)
local behind = number - known
if era ~= known_era or behind > redis.call('LLEN', KEYS[2]) then
  return {{era, number, 1, {{}}, nonce_of(number), key}}
end
if behind == 0 then return {{era, number, 0, {{}}, ARGV[3], key}} end
local last = math.min(-behind + tonumber(ARGV[8]) - 1, -1)
local purges = redis.call('LRANGE', KEYS[2], -behind, last)
return {{era, number, 0, purges, nonce_of(known + #purges), key}}
",
        *PURGE_ERA
    ))
});

/// Whether all who live have seen a purge. Nobody can tell while a process that `seen:` has lost, with
/// whatever else, may not count itself as cut off yet. Nor where the server's clock has gone back: whoever
/// asked at a time that is far to come still is no longer in there, until he asks again.
///
/// KEYS: `seen:`. ARGV: the purge's era and number, for how many milliseconds who asked counts as living,
/// and for how many one that is cut off may not know it.
pub(super) static IS_SEEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local began = tonumber(redis.call('HGET', KEYS[1], 'began') or '')
if not began or now - began < tonumber(ARGV[4]) then return 0 end
local lives, all, seen, went_back = tonumber(ARGV[3]), redis.call('HGETALL', KEYS[1]), 1, false
for at = 1, #all, 2 do
  local era, number, asked = string.match(all[at + 1], '^(%d+) (%d+) (%d+)$')
  local since = era and now - tonumber(asked)
  if since and since < -lives then
    redis.call('HDEL', KEYS[1], all[at])
    went_back = true
  elseif since and since <= lives
    and (era ~= ARGV[1] or tonumber(number) < tonumber(ARGV[2])) then
    seen = 0
  end
end
if went_back then
  redis.call('HSET', KEYS[1], 'began', string.format('%.0f', now))
  return 0
end
return seen
",
    )
});
