//! What a process and its successor say of a store that passes from one to the other.

/// What a successor has done with the store, for the process that takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessorUse {
    /// It has opened the files at most: it was never told that it may change them.
    Read,
    /// It may have changed them.
    Write,
}

/// A part of what a store keeps in memory only, as text of whole lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePart {
    /// What it is of. Parts with the same name belong together, in their order.
    pub name: &'static str,
    /// The layout of the text.
    pub layout: u32,
    /// The text.
    pub text: String,
}
