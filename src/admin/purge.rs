//! The purge command.

use anteroom_cache::purge_order::PurgeOrder;
use anteroom_cache::purger::{PurgeDone, PurgeError, PurgePreview};
use anteroom_http::host_pattern::HostPattern;
use serde::Serialize;

use super::commands::{CommandRefusal, Commands, read};

/// The answer to an order.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum PurgeReport {
    Done(PurgeDone),
    Preview(PurgePreview),
}

impl Commands {
    /// Purges, and reports the result; or, of a dry run, what would be purged.
    pub(super) async fn purge(&self, body: &[u8]) -> Result<PurgeReport, CommandRefusal> {
        let order: PurgeOrder = read(body)?;
        let refused = |error: PurgeError| (error.status(), error.to_string());
        let note = |pages| if pages == 0 { self.purge_note(&order) } else { None };
        if order.dry_run {
            let preview = self.purger.preview(&order).map_err(refused)?;
            return Ok(PurgeReport::Preview(PurgePreview { note: note(preview.pages), ..preview }));
        }
        let done = self.purger.carry_out(&self.store, &order).await.map_err(refused)?;
        Ok(PurgeReport::Done(PurgeDone { note: note(done.pages), ..done }))
    }

    fn purge_note(&self, order: &PurgeOrder) -> Option<String> {
        note(order, self.worker.settings.hosts.as_slice())
    }
}

/// Why an order may have hit no page: it names a host that has none.
fn note(order: &PurgeOrder, hosts: &[HostPattern]) -> Option<String> {
    let is_served = |site: &String| hosts.iter().any(|host| host.matches(site));
    let site = order.sites().find(|site| !is_served(site))?;
    let named = hosts.iter().map(HostPattern::as_str).collect::<Vec<_>>().join(", ");
    Some(match hosts {
        [] => format!(
            "no page of {site} is in this proxy's memory; the host of a page is the one that its clients send, with \
             the port unless it is 80 or 443"
        ),
        _ => format!("{site} has no pages: [origin] hosts is {named}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_pages_is_named() {
        let hosts = [HostPattern::parse("shop.example").unwrap()];
        let order = |url: &str| PurgeOrder { urls: vec![url.to_owned()], ..PurgeOrder::default() };
        assert_eq!(note(&order("/a"), &hosts), None);
        assert_eq!(note(&order("http://shop.example/a"), &hosts), None);
        let told = note(&order("http://www.shop.example/a"), &hosts);
        assert_eq!(told.unwrap(), "www.shop.example has no pages: [origin] hosts is shop.example");
        let told = note(&order("http://127.0.0.1:8080/a"), &[]);
        assert!(told.unwrap().starts_with("no page of 127.0.0.1:8080 is in this proxy's memory"));
    }
}
