//! The key `include`.

use serde_json::Value as Json;

use crate::form::{Faults, Form, List};
use crate::node::Node;
use crate::problem::SettingLocation;
use crate::schema::shared::named;
use crate::{shape, text};

/// Files, or patterns of files, whose settings join those of the file.
///
/// They are read before the schema is walked, so that the plan does not hold them: the value only has the
/// right form.
#[derive(Debug)]
pub(super) struct IncludeForm;

impl Form<()> for IncludeForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<()> {
        if let SettingLocation::Variable(_) = node.location {
            return faults.add(node, "is a key for files; name the file with --config");
        }
        List::of(named(text::config_pattern)).read(node, faults).map(drop)
    }

    fn write(&self, (): &()) -> Option<String> {
        None
    }

    fn shape(&self) -> Json {
        shape::list(&shape::text("a file, or a pattern such as `\"conf.d/*.toml\"`"), 1_000)
    }
}
