//! The stages of a request's life before it is answered.

pub(in crate::proxy) mod admit;
pub(in crate::proxy) mod identify;
pub(in crate::proxy) mod limit;
pub(in crate::proxy) mod redirect;
pub(in crate::proxy) mod revoked;
pub(in crate::proxy) mod verify;
