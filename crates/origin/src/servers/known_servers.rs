//! What is known of the servers of an origin, as the store keeps it for the next process.
//!
//! The value is a version byte and then, for each server, the length of its name, the name, the most requests at which it was
//! calm, the number of kinds of pages, and each kind with its time in seconds: integers and floats, little-endian. A value
//! that is damaged counts as none, and numbers are brought within their bounds: any program may have written them.

use std::sync::Arc;

use anteroom_policy::origin::Overload;
use bytes::{Buf as _, BufMut as _, Bytes};
use tokio::time::Instant;

use super::ServerList;
use super::automatic_limit::{KnownServer, START};

/// The version of the layout.
const VERSION: u8 = 1;
/// The most kinds of pages of a server.
pub(super) const KINDS_MAX: usize = 256;
/// The bytes of a kind.
const KIND: usize = size_of::<u64>() + size_of::<f32>();
/// The bytes of a server beside its name and its kinds.
const BESIDE: usize = size_of::<u16>() + size_of::<f32>() + size_of::<u16>();
/// The least and the most that a limit begins with.
const CALM_AT: (f32, f32) = (START as f32, 1_000.0);
/// The least and the most time of a kind, in seconds. Zero would stay zero: a time grows by a part of itself.
const SECONDS: (f32, f32) = (0.001, 60.0);

/// What the store has of the servers, as far as the process knows.
#[derive(Debug, Default)]
pub(super) enum KeptServers {
    /// It was not read yet.
    #[default]
    Unread,
    /// It has this, or had it when it was read.
    Known(Option<Bytes>),
}

impl ServerList {
    /// Whether there is something to keep over restarts: with `overload = "off"`, nothing is learned.
    #[must_use]
    pub fn learns_limits(&self) -> bool {
        self.rules.overload != Overload::Off
    }

    /// Whether [`Self::recall`] was called.
    #[must_use]
    pub fn has_recalled(&self) -> bool {
        matches!(self.lock().kept, KeptServers::Known(_))
    }

    /// Takes over what the store has of the servers. What was learned here goes before it.
    pub fn recall(self: &Arc<Self>, kept: Option<Bytes>) {
        let known = kept.as_deref().and_then(decode);
        if kept.is_some() && known.is_none() {
            let origin = self.name();
            tracing::debug!(origin, "what the store has of the servers is damaged, and ignored");
        }
        {
            let mut state = self.lock();
            for (name, known) in known.iter().flatten() {
                let place = self.servers.iter().position(|(own, _)| own == name);
                let Some(place) = place else { continue };
                if let Some(limit) = state.automatic.get_mut(place) {
                    limit.recall(known);
                }
            }
            state.kept = KeptServers::Known(kept);
        }
        // A limit that begins higher has room for what waits.
        self.admit_all(Instant::now());
    }

    /// What is known of the servers, in at most so many bytes, for the next process; `None`: the store has the same, or it
    /// has not been read yet and may know more.
    #[must_use]
    pub fn to_keep(&self, bytes_max: usize) -> Option<Bytes> {
        if !self.has_recalled() {
            return None;
        }
        let kinds_max = kinds_max(&self.servers, bytes_max);
        let mut known = Vec::new();
        for (place, (name, _)) in self.servers.iter().enumerate() {
            // The lock is taken for each server in turn: requests wait for it.
            let server = self.lock().automatic.get(place).map(|limit| limit.known(kinds_max));
            known.extend(server.filter(is_worth_keeping).map(|server| (name.as_str(), server)));
        }
        let bytes = encode(&known, bytes_max)?;
        let has_same =
            matches!(&self.lock().kept, KeptServers::Known(Some(kept)) if *kept == bytes);
        (!has_same).then_some(bytes)
    }

    /// The store has this now, from [`Self::to_keep`].
    pub fn note_kept(&self, bytes: Bytes) {
        self.lock().kept = KeptServers::Known(Some(bytes));
    }
}

/// Whether it is more than what any process begins with.
fn is_worth_keeping(server: &KnownServer) -> bool {
    server.calm_at > CALM_AT.0 || !server.kinds.is_empty()
}

/// How many kinds of pages of each server have room in so many bytes.
fn kinds_max(servers: &[(String, u32)], bytes_max: usize) -> usize {
    let beside: usize = servers.iter().map(|(name, _)| BESIDE + name.len()).sum();
    let room = bytes_max.saturating_sub(size_of_val(&VERSION) + beside);
    (room / (servers.len().max(1) * KIND)).min(KINDS_MAX)
}

/// The value of these servers, as many as have room; `None`: none.
pub(super) fn encode(known: &[(&str, KnownServer)], bytes_max: usize) -> Option<Bytes> {
    let mut value = vec![VERSION];
    for (name, KnownServer { calm_at, kinds }) in known {
        let size = BESIDE + name.len() + kinds.len() * KIND;
        let lengths = (u16::try_from(name.len()), u16::try_from(kinds.len()));
        let (Ok(name_length), Ok(kinds_length)) = lengths else { continue };
        if value.len() + size > bytes_max {
            break;
        }
        value.put_u16_le(name_length);
        value.put_slice(name.as_bytes());
        value.put_f32_le(calm_at.clamp(CALM_AT.0, CALM_AT.1));
        value.put_u16_le(kinds_length);
        for (kind, seconds) in kinds {
            value.put_u64_le(*kind);
            value.put_f32_le(seconds.clamp(SECONDS.0, SECONDS.1));
        }
    }
    (value.len() > 1).then(|| value.into())
}

/// The servers of a value, by their names; `None` if anything in it is wrong.
pub(super) fn decode(mut value: &[u8]) -> Option<Vec<(String, KnownServer)>> {
    if value.try_get_u8() != Ok(VERSION) {
        return None;
    }
    let mut known = Vec::new();
    while !value.is_empty() {
        known.push(decode_server(&mut value)?);
    }
    Some(known)
}

fn decode_server(value: &mut &[u8]) -> Option<(String, KnownServer)> {
    let length = usize::from(value.try_get_u16_le().ok()?);
    let (name, rest) = value.split_at_checked(length)?;
    *value = rest;
    let name = String::from_utf8(name.to_vec()).ok()?;
    let calm_at = decode_number(value, CALM_AT.0, CALM_AT.1)?;
    let count = usize::from(value.try_get_u16_le().ok()?);
    if count > KINDS_MAX {
        return None;
    }
    let mut kinds = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = value.try_get_u64_le().ok()?;
        kinds.push((kind, decode_number(value, SECONDS.0, SECONDS.1)?));
    }
    Some((name, KnownServer { calm_at, kinds }))
}

/// A number within its bounds.
fn decode_number(value: &mut &[u8], least: f32, most: f32) -> Option<f32> {
    let number = value.try_get_f32_le().ok()?;
    // What is no number has no bounds.
    (!number.is_nan()).then(|| number.clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::super::ServerRules;
    use super::super::tests::{rules, server_list};
    use super::*;

    const BYTES_MAX: usize = 16 << 10;

    fn server(calm_at: f32, kinds: &[(u64, f32)]) -> KnownServer {
        KnownServer { calm_at, kinds: kinds.to_vec() }
    }

    fn encoded(known: &[(&str, KnownServer)]) -> Bytes {
        encode(known, BYTES_MAX).unwrap()
    }

    fn learning(servers: usize) -> Arc<ServerList> {
        server_list(servers, ServerRules { overload: Overload::Order, ..rules() })
    }

    fn limits(list: &Arc<ServerList>) -> Vec<Option<u32>> {
        list.standings().iter().map(|standing| standing.limit).collect()
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let known = [
            ("app:8000", server(24.5, &[(1, 0.25), (u64::MAX, 30.0)])),
            ("unix:/run/app.sock", server(8.0, &[])),
        ];
        let expected = known.clone().map(|(name, known)| (name.to_owned(), known));
        assert_eq!(decode(&encoded(&known)).unwrap(), expected);
        assert_eq!(encode(&[], BYTES_MAX), None);
    }

    #[test]
    fn numbers_are_brought_within_their_bounds() {
        let of = |calm_at: f32, seconds: f32| {
            let mut value = vec![VERSION];
            value.put_u16_le(1);
            value.put_slice(b"a");
            value.put_f32_le(calm_at);
            value.put_u16_le(1);
            value.put_u64_le(7);
            value.put_f32_le(seconds);
            decode(&value).map(|known| known[0].1.clone())
        };
        assert_eq!(of(1e9, 1e9), Some(server(1_000.0, &[(7, 60.0)])));
        assert_eq!(of(-1.0, -1.0), Some(server(START as f32, &[(7, 0.001)])));
        assert_eq!(of(f32::INFINITY, f32::NEG_INFINITY), Some(server(1_000.0, &[(7, 0.001)])));
        assert_eq!(of(f32::NAN, 1.0), None);
        assert_eq!(of(8.0, f32::NAN), None);
    }

    #[test]
    fn what_is_damaged_counts_as_nothing() {
        let whole = encoded(&[("app:8000", server(24.0, &[(1, 0.25), (2, 3.0)]))]);
        for end in 0..whole.len() {
            assert!(end == 1 || decode(&whole[..end]).is_none(), "{end} bytes");
        }
        let mut other_version = whole.to_vec();
        other_version[0] = 2;
        assert_eq!(decode(&other_version), None);
        assert_eq!(decode(&[&whole[..], b"x"].concat()), None);
        assert_eq!(decode(&[0xff; BYTES_MAX]), None);
        let list = learning(1);
        list.recall(Some(Bytes::from_static(b"\x01damaged")));
        assert_eq!(limits(&list), [Some(START as u32)]);
    }

    #[test]
    fn a_value_has_a_bound_however_many_servers_and_kinds_there_are() {
        for count in [1, 3, 40, 2_000] {
            let names: Vec<_> = (0..count).map(|number| (format!("app-{number}:80"), 1)).collect();
            let room = kinds_max(&names, BYTES_MAX);
            assert!(room <= KINDS_MAX);
            let kinds: Vec<_> = (0..room as u64).map(|kind| (kind, 0.25)).collect();
            let of = |(name, _): &(String, u32)| (name.clone(), server(24.0, &kinds));
            let owned: Vec<_> = names.iter().map(of).collect();
            let known: Vec<_> =
                owned.iter().map(|(name, known)| (&**name, known.clone())).collect();
            let value = encoded(&known);
            assert!(value.len() <= BYTES_MAX, "{count} servers: {}", value.len());
            let read = decode(&value).unwrap();
            assert!(read.len() == count || count == 2_000, "{} of {count}", read.len());
        }
        assert_eq!(kinds_max(&[("app:80".to_owned(), 1)], BYTES_MAX), KINDS_MAX);
    }

    #[test]
    fn a_list_begins_with_what_another_process_knew_of_its_servers() {
        let kept = encoded(&[("s1:1", server(40.0, &[(7, 0.25)])), ("gone:1", server(90.0, &[]))]);
        let list = learning(2);
        assert_eq!(list.to_keep(BYTES_MAX), None, "the store may know more");
        list.recall(Some(kept));
        assert_eq!(limits(&list), [Some(START as u32), Some(40)]);
        let next = list.to_keep(BYTES_MAX).unwrap();
        assert_eq!(next, encoded(&[("s1:1", server(40.0, &[(7, 0.25)]))]), "one server is gone");
        list.note_kept(next.clone());
        assert_eq!(list.to_keep(BYTES_MAX), None, "the store has it");
        let another = learning(2);
        another.recall(Some(next));
        assert_eq!(another.to_keep(BYTES_MAX), None, "nothing was learned since");
    }

    #[test]
    fn nothing_is_kept_where_nothing_was_learned() {
        let list = learning(2);
        list.recall(None);
        assert!(list.has_recalled());
        assert_eq!(list.to_keep(BYTES_MAX), None);
        let off = server_list(2, rules());
        assert!(!off.learns_limits());
        off.recall(Some(encoded(&[("s1:1", server(40.0, &[]))])));
        assert_eq!(off.to_keep(BYTES_MAX), None);
        assert_eq!(limits(&off), [None, None]);
    }
}
