//! Values as JSON: numbers, texts, bytes, lists, and identifiers.

use std::time::Duration;

use anteroom_http::ident::{
    CookieHash, Item, PageKey, Row, StoredToken, User, VisitorToken, hex, unhex,
};
use bytes::Bytes;
use serde_json::Value;

use crate::MarkKey;

/// What is sent.
pub(super) trait ToWire {
    fn to_wire(&self) -> Value;
}

/// What is received.
pub(super) trait FromWire: Sized {
    /// `None`: this version does not know such a value.
    fn from_wire(value: &Value) -> Option<Self>;
}

/// The member `name` of an object. One that is missing reads as `null`.
pub(super) fn member<T: FromWire>(value: &Value, name: &str) -> Option<T> {
    T::from_wire(value.get(name).unwrap_or(&Value::Null))
}

macro_rules! numbers {
    ($($number:ty: $read:ident),*) => {
        $(impl ToWire for $number {
            fn to_wire(&self) -> Value {
                (*self).into()
            }
        }

        impl FromWire for $number {
            fn from_wire(value: &Value) -> Option<Self> {
                value.$read()?.try_into().ok()
            }
        })*
    };
}

numbers!(u32: as_u64, u64: as_u64, usize: as_u64, i64: as_i64, bool: as_bool);

/// By its bits: JSON has no infinity, and a time must stay the same.
impl ToWire for f64 {
    fn to_wire(&self) -> Value {
        self.to_bits().into()
    }
}

impl FromWire for f64 {
    fn from_wire(value: &Value) -> Option<Self> {
        value.as_u64().map(Self::from_bits)
    }
}

impl ToWire for () {
    fn to_wire(&self) -> Value {
        Value::Null
    }
}

impl FromWire for () {
    fn from_wire(_value: &Value) -> Option<Self> {
        Some(())
    }
}

impl ToWire for Duration {
    fn to_wire(&self) -> Value {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).into()
    }
}

impl FromWire for Duration {
    fn from_wire(value: &Value) -> Option<Self> {
        value.as_u64().map(Self::from_nanos)
    }
}

impl ToWire for String {
    fn to_wire(&self) -> Value {
        self.as_str().into()
    }
}

impl FromWire for String {
    fn from_wire(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl ToWire for Bytes {
    fn to_wire(&self) -> Value {
        bytes_to_wire(self)
    }
}

impl FromWire for Bytes {
    fn from_wire(value: &Value) -> Option<Self> {
        bytes_from_wire(value).map(Self::from)
    }
}

/// Text behind `=`, and other bytes as hex digits.
fn bytes_to_wire(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => format!("={text}").into(),
        Err(_) => hex(bytes).into(),
    }
}

fn bytes_from_wire(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    match text.strip_prefix('=') {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => unhex(text),
    }
}

impl<T: ToWire + ?Sized> ToWire for &T {
    fn to_wire(&self) -> Value {
        (**self).to_wire()
    }
}

/// `null`, or a list of one.
impl<T: ToWire> ToWire for Option<T> {
    fn to_wire(&self) -> Value {
        match self {
            Some(value) => Value::Array(vec![value.to_wire()]),
            None => Value::Null,
        }
    }
}

impl<T: FromWire> FromWire for Option<T> {
    fn from_wire(value: &Value) -> Option<Self> {
        match value.as_array() {
            Some(one) => one.first().and_then(T::from_wire).map(Some),
            None => value.is_null().then_some(None),
        }
    }
}

impl<T: ToWire> ToWire for [T] {
    fn to_wire(&self) -> Value {
        self.iter().map(ToWire::to_wire).collect()
    }
}

impl<T: ToWire> ToWire for Vec<T> {
    fn to_wire(&self) -> Value {
        self.as_slice().to_wire()
    }
}

impl<T: FromWire> FromWire for Vec<T> {
    fn from_wire(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_wire).collect()
    }
}

impl<A: ToWire, B: ToWire> ToWire for (A, B) {
    fn to_wire(&self) -> Value {
        Value::Array(vec![self.0.to_wire(), self.1.to_wire()])
    }
}

impl<A: FromWire, B: FromWire> FromWire for (A, B) {
    fn from_wire(value: &Value) -> Option<Self> {
        let [one, other] = value.as_array()?.as_slice() else { return None };
        Some((A::from_wire(one)?, B::from_wire(other)?))
    }
}

macro_rules! texts {
    ($($name:ty: $read:expr),*) => {
        $(impl ToWire for $name {
            fn to_wire(&self) -> Value {
                self.as_str().into()
            }
        }

        impl FromWire for $name {
            fn from_wire(value: &Value) -> Option<Self> {
                value.as_str().and_then($read)
            }
        })*
    };
}

texts!(
    Item: Self::new,
    Row: Self::new,
    StoredToken: |text| Self::from_store(text.as_bytes()),
    VisitorToken: |text| Self::from_store(text.as_bytes())
);

macro_rules! hashes {
    ($($name:ident),*) => {
        $(impl ToWire for $name {
            fn to_wire(&self) -> Value {
                self.hex().into()
            }
        }

        impl FromWire for $name {
            fn from_wire(value: &Value) -> Option<Self> {
                unhex(value.as_str()?)?.try_into().ok().map(Self)
            }
        })*
    };
}

hashes!(CookieHash, PageKey);

/// With the attributes and the bond.
impl ToWire for User {
    fn to_wire(&self) -> Value {
        bytes_to_wire(self.as_stored())
    }
}

impl FromWire for User {
    fn from_wire(value: &Value) -> Option<Self> {
        Self::from_store(&bytes_from_wire(value)?)
    }
}

impl ToWire for MarkKey {
    fn to_wire(&self) -> Value {
        hex(&self.bytes()).into()
    }
}

impl FromWire for MarkKey {
    fn from_wire(value: &Value) -> Option<Self> {
        unhex(value.as_str()?)?.try_into().ok().map(Self::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back<T: ToWire + FromWire + PartialEq + std::fmt::Debug>(value: T) {
        let text = value.to_wire().to_string();
        let read = T::from_wire(&serde_json::from_str(&text).unwrap());
        assert_eq!(read, Some(value), "{text}");
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        comes_back(u64::MAX);
        comes_back(i64::MIN);
        comes_back((true, 0_usize));
        comes_back(vec![0.1, f64::INFINITY, 1_790_000_000.123_456_7, -0.0]);
        comes_back(Duration::from_nanos(1_500_000_001));
        comes_back(vec![Some(Some(1_u32)), Some(None), None]);
        for bytes in [&b""[..], b"=", b"text \x00\"", b"\xff\x00"] {
            comes_back(Bytes::from_static(bytes));
        }
        let user = User::new(b"ann \xff").unwrap();
        comes_back(user.with_attributes(&[("group".to_owned(), "a".to_owned())]).unwrap());
        comes_back((Item::new("a \"mug\"").unwrap(), Row::new("ü").unwrap()));
        comes_back((CookieHash([7; 32]), PageKey([0xab; 32])));
        comes_back(MarkKey::random());
        let digits = "0".repeat(64);
        comes_back(VisitorToken::from_store(format!("v,{digits}").as_bytes()).unwrap());
        comes_back(StoredToken::from_store(b"token-0001").unwrap());
    }

    #[test]
    fn what_is_no_such_value_is_none() {
        let read = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert_eq!(u32::from_wire(&read("4294967296")), None);
        assert_eq!(u64::from_wire(&read("-1")), None);
        assert_eq!(f64::from_wire(&read("1.5")), None);
        assert_eq!(StoredToken::from_wire(&read("\"short\"")), None);
        assert_eq!(Bytes::from_wire(&read("\"0\"")), None);
        assert_eq!(CookieHash::from_wire(&read("\"00\"")), None);
        assert_eq!(Option::<u64>::from_wire(&read("[]")), None);
        assert_eq!(Option::<u64>::from_wire(&read("1")), None);
        assert_eq!(Vec::<u64>::from_wire(&read("[1, null]")), None);
        assert_eq!(<(u64, u64)>::from_wire(&read("[1]")), None);
        assert_eq!(member::<Option<u64>>(&read("{}"), "missing"), Some(None));
        assert_eq!(member::<u64>(&read("[]"), "missing"), None);
    }
}
