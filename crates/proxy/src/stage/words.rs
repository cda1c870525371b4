//! How far a request came, in words, for tables of tests.

use anteroom_cache::rules::verdict::Sharing;
use anteroom_telemetry::access_log::VisitorClass;

use super::StageResult;
use super::divert::Diversion;
use crate::error::Error;

/// How far a request came, in words.
pub(crate) fn in_words(reached: Result<StageResult<'_>, Error>) -> String {
    let identified = match reached {
        Err(error) => return format!("{} {}", error.status().as_u16(), error.reason().as_str()),
        Ok(StageResult::Diverted(diverted)) => {
            return match diverted {
                Diversion::Challenge(..) => "answer to a challenge".to_owned(),
                Diversion::Purge(..) => "purge".to_owned(),
                Diversion::Redirect(..) => "redirect to https".to_owned(),
                Diversion::RouteRedirect(routed) => format!("{}: redirect", routed.route().name),
                Diversion::Endpoint(_) => "endpoint".to_owned(),
                Diversion::No(_) => "not diverted".to_owned(),
            };
        }
        Ok(StageResult::Identified(identified)) => identified,
    };
    let visitor = identified.visitor();
    let known_as = match (visitor.class, visitor.sharing) {
        (VisitorClass::Known, Sharing::Known) => "known".to_owned(),
        (VisitorClass::Known, Sharing::Apart(reason) | Sharing::Unknown(reason)) => {
            format!("known, {}", reason.as_str())
        }
        (VisitorClass::Anonymous, Sharing::Anonymous) => "anonymous".to_owned(),
        (VisitorClass::Anonymous, Sharing::Unknown(reason)) => {
            format!("no login, {}", reason.as_str())
        }
        (VisitorClass::Unknown, Sharing::Unknown(reason)) => {
            format!("unknown, {}", reason.as_str())
        }
        (class, sharing) => format!("a {} visitor that counts as {sharing:?}", class.as_str()),
    };
    let item = identified.item().map_or_else(String::new, |item| format!(" {}", item.as_str()));
    let name = &identified.route().name;
    let route = if name.is_empty() { "default" } else { &**name };
    format!("{route}{item}: {known_as}")
}
