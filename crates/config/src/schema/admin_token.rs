//! The form of `[[admin.tokens]]`.

use std::collections::HashSet;

use anteroom_policy::admin::AdminRole;
use serde_json::Value as Json;

use super::extractor::TableReader;
use super::shared::named;
use crate::credential::BearerToken;
use crate::form::{Faults, Form, List, Words, string};
use crate::node::Node;
use crate::plan::NamedToken;
use crate::{shape, text};

/// The most tokens: each request with a token is compared with all of them.
const TOKENS_MAX: usize = 32;

const EXPECTED: &str =
    r#"a table such as { name = "alice", role = "read", token = { file = "/path/of/it" } }"#;

/// `[{ name = "alice", role = "read", token = { file = "…" } }]`, which `[[admin.tokens]]` writes as well.
#[derive(Debug)]
pub(super) struct AdminTokens;

impl Form<Vec<NamedToken>> for AdminTokens {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<NamedToken>> {
        let tokens = List::of(AdminTokenForm).read(node, faults)?;
        if tokens.len() > TOKENS_MAX {
            let text = format!("found {} tokens; expected at most {TOKENS_MAX}", tokens.len());
            return faults.add(node, text);
        }
        let mut names = HashSet::new();
        match tokens.iter().zip(node.as_list()).find(|(one, _)| !names.insert(one.name.as_str())) {
            Some((one, node)) => {
                let text = format!("{} is already the name of another token", string(&one.name));
                faults.add(node, text)
            }
            None => Some(tokens),
        }
    }

    fn write(&self, tokens: &Vec<NamedToken>) -> Option<String> {
        List::of(AdminTokenForm).write(tokens)
    }

    fn shape(&self) -> Json {
        shape::list(&AdminTokenForm.shape(), TOKENS_MAX)
    }
}

/// `{ name = "alice", role = "read", token = { file = "…" } }`
#[derive(Debug)]
struct AdminTokenForm;

impl Form<NamedToken> for AdminTokenForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<NamedToken> {
        let mut keys = TableReader::of(node, faults, EXPECTED)?;
        let name = keys.read("name", &named(text::admin_token_name), faults);
        let role = keys.read("role", &Words(&AdminRole::WORDS), faults);
        let token = keys.read("token", &BearerToken, faults);
        keys.end(faults)?;
        match (name?, role?, token?) {
            (Some(name), Some(role), Some(token)) => Some(NamedToken { name, role, token }),
            _ => faults.expected(node, EXPECTED),
        }
    }

    fn write(&self, one: &NamedToken) -> Option<String> {
        let mut pairs = vec![
            format!("name = {}", string(&one.name)),
            format!("role = {}", string(one.role.word())),
        ];
        // A secret without a source is never written.
        pairs.extend(BearerToken.write(&one.token).map(|token| format!("token = {token}")));
        Some(format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        let keys = [
            ("name", named(text::admin_token_name).shape()),
            ("role", Words(&AdminRole::WORDS).shape()),
            ("token", BearerToken.shape()),
        ];
        shape::table(EXPECTED, keys)
    }
}
