//! The body of a request that may log in or change pages, as far as it is kept.

use std::cell::RefCell;
use std::rc::Rc;

use anteroom_http::form::form_value;

/// The kept part of a request's body.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptBody(pub(crate) Rc<RefCell<Vec<u8>>>);

impl KeptBody {
    /// The value of a field, if the body is a form. `None`: there is no such field, or more than one.
    pub(crate) fn form_value(&self, field: &str) -> Option<Vec<u8>> {
        form_value(&self.0.borrow(), field)
    }
}
