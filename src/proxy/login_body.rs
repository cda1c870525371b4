//! The body of a request that may log in, as far as it is kept.

use std::cell::RefCell;
use std::rc::Rc;

/// The kept part of a request's body.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct LoginBody(pub(in crate::proxy) Rc<RefCell<Vec<u8>>>);
