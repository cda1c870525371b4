//! Where an answer comes from: the cache, the origin, a row, or the proxy itself.

pub(in crate::proxy) mod cache;
pub(in crate::proxy) mod endpoint;
pub(in crate::proxy) mod forward;
pub(in crate::proxy) mod personal_data;
pub(in crate::proxy) mod purge_method;
pub(in crate::proxy) mod rows;
pub(in crate::proxy) mod upgrade;
