//! The roster as threads use it.
