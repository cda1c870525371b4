//! The scripts: steps that must look before they write, each atomic on the server.
//!
//! A plain pipeline costs Redis less (a script 1.3 to 1.5 times as much), so that steps which
//! need no look are none. Sent by hash; redis-rs loads a script that the server does not know.

use std::sync::LazyLock;

use redis::Script;

/// Renews the sessions of visits, each only where `login:` still holds that user.
///
/// KEYS: `login:`, `recent:`, then `viewed:<token>` of each visit. ARGV: how many items to keep,
/// then for each visit: token, user, time, number of items, and their times and ids.
/// Returns how many were logged in.
pub(super) static TOUCH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local keep, at, known = tonumber(ARGV[1]), 2, 0
for visit = 3, #KEYS do
  local token, user, seen, items = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  if redis.call('HGET', KEYS[1], token) == user then
    known = known + 1
    redis.call('ZADD', KEYS[2], 'GT', seen, token)
    if items > 0 then
      -- pcall: one key that is no ZSET must not hold up the visits behind it.
      redis.pcall('ZADD', KEYS[visit], 'GT', unpack(ARGV, at, at + 2 * items - 1))
      redis.pcall('ZREMRANGEBYRANK', KEYS[visit], 0, -keep - 1)
    end
  end
  at = at + 2 * items
end
return known
",
    )
});

/// A log-in that replaces a token.
///
/// KEYS: `login:`, `recent:`, `viewed:` and `cart:` of the new token, and, where there was an
/// old one, of the old. ARGV: new token, user, time, and the old token or nothing.
/// Views and cart move where the old token had no user or the same, and the new one has none.
pub(super) static ROTATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local token, user, now, old = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local taken = redis.call('HGET', KEYS[1], token)
if taken and taken ~= user then
  redis.call('UNLINK', KEYS[3], KEYS[4])
  redis.call('ZREM', KEYS[2], token)
end
if old then
  local before = redis.call('HGET', KEYS[1], old)
  if not before or before == user then
    for had = 5, 6 do
      if redis.call('EXISTS', KEYS[had]) == 1 then
        redis.call('RENAMENX', KEYS[had], KEYS[had - 2])
      end
    end
  end
  redis.call('UNLINK', KEYS[5], KEYS[6])
  redis.call('HDEL', KEYS[1], old)
  redis.call('ZREM', KEYS[2], old)
end
redis.call('HSET', KEYS[1], token, user)
redis.call('ZADD', KEYS[2], 'GT', now, token)
",
    )
});

/// Removes the oldest sessions over the limit, at most a batch.
///
/// KEYS: `login:`, `recent:`. ARGV: how many to keep, the batch, what stands before a token in
/// the names of its views and of its cart (empty: leave carts). Returns how many it removed.
/// A member that is no token is removed from `login:` and `recent:` only: `viewed:` with nothing
/// behind it is the popularity set.
pub(super) static EVICT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local over = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[1])
local count = math.min(over, tonumber(ARGV[2]))
if count <= 0 then return 0 end
local oldest = redis.call('ZRANGE', KEYS[2], 0, count - 1)
local doomed = {}
for _, token in ipairs(oldest) do
  if #token >= 8 and #token <= 256 and not string.find(token, '[^!-~]')
      and not string.find(token, '[;,"\\{}]') then
    doomed[#doomed + 1] = ARGV[3] .. token
    if ARGV[4] ~= '' then doomed[#doomed + 1] = ARGV[4] .. token end
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
redis.call('HDEL', KEYS[1], unpack(oldest))
redis.call('ZREM', KEYS[2], unpack(oldest))
return #oldest
"#,
    )
});

/// Changes a cart where `login:` still holds that user for its token.
///
/// KEYS: `login:`, `cart:<token>`. ARGV: token, user, the most items, then either nothing (the
/// cart is emptied) or items, each with its count. Returns 0 where nobody or another is logged
/// in, 1 where the cart would hold too many, else the cart.
pub(super) static CHANGE_CART: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if #ARGV == 3 then
  redis.call('UNLINK', KEYS[2])
  return {}
end
local size = redis.call('HLEN', KEYS[2])
local grows = false
for at = 4, #ARGV, 2 do
  local is_there = redis.call('HEXISTS', KEYS[2], ARGV[at]) == 1
  if tonumber(ARGV[at + 1]) > 0 then
    if not is_there then size, grows = size + 1, true end
  elseif is_there then
    size = size - 1
  end
end
if grows and size > tonumber(ARGV[3]) then return 1 end
for at = 4, #ARGV, 2 do
  if tonumber(ARGV[at + 1]) > 0 then
    redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  else
    redis.call('HDEL', KEYS[2], ARGV[at])
  end
end
return redis.call('HGETALL', KEYS[2])
",
    )
});

/// `rescale_viewed`, unless somebody did lately. The first look only begins a period.
///
/// KEYS: `viewed:`, `rescaled:`. ARGV: how many items to keep, the period in seconds, the time,
/// the period twice in milliseconds, and what is left of each score. Returns 1 where it was done.
pub(super) static RESCALE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local every, now = tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(redis.call('GET', KEYS[2]) or '')
local since = last and now - last
-- Clocks differ a little; one that was set back by a whole period begins anew.
if since and since < every and since > -every then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
if not since or since < 0 then return 0 end
redis.call('ZREMRANGEBYRANK', KEYS[1], ARGV[1], -1)
redis.call('ZINTERSTORE', KEYS[1], 1, KEYS[1], 'WEIGHTS', ARGV[5])
return 1
",
    )
});
