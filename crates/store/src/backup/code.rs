//! Records as bytes. Numbers are little-endian; a text has its length before it; what may be missing has a byte before
//! it that says so. The version is that of the file.

use anteroom_http::ident::{Item, Row, StoredToken, User, VisitorToken};
use bytes::Bytes;

use crate::transfer::{IdleMark, LogInTime, SharedRecord, TransferRecord};

/// The first byte of a record.
const TOKEN: u8 = 0;
const POPULARITY: u8 = 1;
const ROW: u8 = 2;
const REVOKED: u8 = 3;
const EVENT: u8 = 4;
const OUTBOX: u8 = 5;
const STREAM: u8 = 6;
const IDLE_MARK: u8 = 7;
/// A row with the time at which it leaves the schedule before it.
const ROW_UNTIL: u8 = 8;

/// What a backup is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BackupRecord {
    /// A session, or a visitor.
    Token(TransferRecord),
    /// What belongs to no token.
    Shared(SharedRecord),
}

/// Appends a record.
pub(super) fn write(to: &mut Vec<u8>, record: &BackupRecord) {
    match record {
        BackupRecord::Token(record) => {
            to.push(TOKEN);
            write_token(to, record);
        }
        BackupRecord::Shared(SharedRecord::Popularity(item, score)) => {
            to.push(POPULARITY);
            text(to, item.as_str().as_bytes());
            float(to, *score);
        }
        BackupRecord::Shared(SharedRecord::Row { row, delay, due, refreshed, until, json }) => {
            match until {
                None => to.push(ROW),
                Some(until) => {
                    to.push(ROW_UNTIL);
                    float(to, *until);
                }
            }
            text(to, row.as_str().as_bytes());
            float(to, *delay);
            maybe(to, *due, float);
            maybe(to, *refreshed, float);
            maybe(to, json.as_deref(), text);
        }
        BackupRecord::Shared(SharedRecord::Revoked { digest, until }) => {
            to.push(REVOKED);
            text(to, digest.as_bytes());
            float(to, *until);
        }
        BackupRecord::Shared(SharedRecord::Event(record)) => {
            to.push(EVENT);
            text(to, record);
        }
        BackupRecord::Shared(SharedRecord::Outbox(record)) => {
            to.push(OUTBOX);
            text(to, record);
        }
        BackupRecord::Shared(SharedRecord::Stream { id: (time, number), fields }) => {
            to.push(STREAM);
            to.extend_from_slice(&time.to_le_bytes());
            to.extend_from_slice(&number.to_le_bytes());
            length(to, fields.len());
            for (name, value) in fields {
                text(to, name);
                text(to, value);
            }
        }
        BackupRecord::Shared(SharedRecord::IdleMark(IdleMark { until, token })) => {
            to.push(IDLE_MARK);
            float(to, *until);
            maybe(to, token.as_ref().map(|token| token.as_str().as_bytes()), text);
        }
    }
}

fn write_token(to: &mut Vec<u8>, record: &TransferRecord) {
    text(to, record.token.as_str().as_bytes());
    maybe(to, record.user.as_ref().map(User::as_stored), text);
    maybe(to, record.seen, float);
    let (kind, time) = match record.since {
        LogInTime::Unknown => (0, 0.0),
        LogInTime::At(time) => (1, time),
        LogInTime::FirstSeen(time) => (2, time),
    };
    to.push(kind);
    float(to, time);
    length(to, record.viewed.len());
    for (item, seen) in &record.viewed {
        text(to, item.as_str().as_bytes());
        float(to, *seen);
    }
    length(to, record.cart.len());
    for (item, count) in &record.cart {
        text(to, item.as_str().as_bytes());
        to.extend_from_slice(&count.to_le_bytes());
    }
}

fn float(to: &mut Vec<u8>, value: f64) {
    to.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn length(to: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("a record is far below 4 GiB");
    to.extend_from_slice(&length.to_le_bytes());
}

fn text(to: &mut Vec<u8>, text: &[u8]) {
    length(to, text.len());
    to.extend_from_slice(text);
}

fn maybe<T>(to: &mut Vec<u8>, value: Option<T>, write: impl Fn(&mut Vec<u8>, T)) {
    to.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(to, value);
    }
}

/// Reads the record at the head of `from`, and moves behind it. `None`: there is none that this version knows.
pub(super) fn read(from: &mut &[u8]) -> Option<BackupRecord> {
    let shared = match take::<1>(from)?[0] {
        TOKEN => return read_token(from).map(BackupRecord::Token),
        POPULARITY => SharedRecord::Popularity(read_item(from)?, read_float(from)?),
        ROW => read_row(from, None)?,
        ROW_UNTIL => {
            let until = read_float(from)?;
            read_row(from, Some(until))?
        }
        REVOKED => SharedRecord::Revoked {
            digest: String::from_utf8(read_text(from)?.to_vec()).ok()?,
            until: read_float(from)?,
        },
        EVENT => SharedRecord::Event(read_text(from)?.to_vec()),
        OUTBOX => SharedRecord::Outbox(read_text(from)?.to_vec()),
        STREAM => {
            let id = (u64::from_le_bytes(take(from)?), u64::from_le_bytes(take(from)?));
            let fields = read_list(from, |from| {
                Some((read_text(from)?.to_vec(), read_text(from)?.to_vec()))
            })?;
            SharedRecord::Stream { id, fields }
        }
        IDLE_MARK => {
            let until = read_float(from)?;
            let token = read_maybe(from, |from| StoredToken::from_store(read_text(from)?))?;
            SharedRecord::IdleMark(IdleMark { until, token })
        }
        _ => return None,
    };
    Some(BackupRecord::Shared(shared))
}

fn read_token(from: &mut &[u8]) -> Option<TransferRecord> {
    let token = read_text(from)?;
    let visitor = VisitorToken::from_store(token).map(|token| token.as_stored().clone());
    let token = visitor.or_else(|| StoredToken::from_store(token))?;
    let user = read_maybe(from, |from| User::from_store(read_text(from)?))?;
    let seen = read_maybe(from, read_float)?;
    let since = match (take::<1>(from)?[0], read_float(from)?) {
        (0, _) => LogInTime::Unknown,
        (1, time) => LogInTime::At(time),
        (2, time) => LogInTime::FirstSeen(time),
        _ => return None,
    };
    let viewed = read_list(from, |from| Some((read_item(from)?, read_float(from)?)))?;
    let cart = read_list(from, |from| Some((read_item(from)?, i64::from_le_bytes(take(from)?))))?;
    Some(TransferRecord { token, user, seen, since, viewed, cart })
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}

fn read_float(from: &mut &[u8]) -> Option<f64> {
    take(from).map(|bytes| f64::from_bits(u64::from_le_bytes(bytes)))
}

fn read_length(from: &mut &[u8]) -> Option<usize> {
    take(from).map(|bytes| u32::from_le_bytes(bytes) as usize)
}

fn read_text<'v>(from: &mut &'v [u8]) -> Option<&'v [u8]> {
    let length = read_length(from)?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(text)
}

fn read_row(from: &mut &[u8], until: Option<f64>) -> Option<SharedRecord> {
    Some(SharedRecord::Row {
        row: Row::new(std::str::from_utf8(read_text(from)?).ok()?)?,
        delay: read_float(from)?,
        due: read_maybe(from, read_float)?,
        refreshed: read_maybe(from, read_float)?,
        until,
        json: read_maybe(from, |from| read_text(from).map(Bytes::copy_from_slice))?,
    })
}

fn read_item(from: &mut &[u8]) -> Option<Item> {
    Item::new(std::str::from_utf8(read_text(from)?).ok()?)
}

/// `None`: damaged; `Some(None)`: it is not there.
fn read_maybe<'v, T>(
    from: &mut &'v [u8],
    read: impl Fn(&mut &'v [u8]) -> Option<T>,
) -> Option<Option<T>> {
    match take::<1>(from)?[0] {
        0 => Some(None),
        1 => read(from).map(Some),
        _ => None,
    }
}

/// The length is not trusted: the list grows with what is there.
fn read_list<'v, T>(
    from: &mut &'v [u8],
    read: impl Fn(&mut &'v [u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let length = read_length(from)?;
    let mut list = Vec::new();
    for _ in 0..length {
        list.push(read(from)?);
    }
    Some(list)
}
