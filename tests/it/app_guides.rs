//! Apps that purge by themselves: the configuration that the guide has for each, before an app that answers as that
//! one does.

use crate::support::client::Answer;
use crate::support::guide_section;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::Proxy;

/// The configuration for an app, but for where it is.
fn configuration(app: &str) -> String {
    let guide = guide_section("apps.md", app);
    let block = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    block[block.find("[session]").unwrap()..].to_owned()
}

fn has_cookie(request: &Request, pair: &str) -> bool {
    let cookies = request.header("cookie").unwrap_or_default();
    cookies.split("; ").any(|cookie| cookie.starts_with(pair))
}

/// A shop of Magento: its pages depend on the session, and say so by the cookie `X-Magento-Vary`.
fn magento(request: &Request) -> Reply {
    let is_customer = has_cookie(request, "PHPSESSID=customer");
    let reader = if is_customer { "ann" } else { "a guest" };
    let lifetime = match request.path().starts_with("/customer/") {
        true => "no-store, no-cache, must-revalidate, max-age=0",
        false => "max-age=86400, public, s-maxage=86400",
    };
    let mut reply = Reply::html(&format!("<p>Prices for {reader}</p>"))
        .header("Cache-Control", lifetime)
        .header("X-Magento-Tags", "cat_p_1,cms_b_2");
    if !has_cookie(request, "PHPSESSID=") {
        reply = reply.header("Set-Cookie", "PHPSESSID=q7fkm2vd1x; path=/");
    }
    match (is_customer, has_cookie(request, "X-Magento-Vary=")) {
        (true, false) => reply.header("Set-Cookie", "X-Magento-Vary=9c2b1d; path=/"),
        (false, true) => reply.header("Set-Cookie", "X-Magento-Vary=deleted; Max-Age=0; path=/"),
        (true, true) | (false, false) => reply,
    }
}

#[test]
fn the_magento_guide_shares_pages_of_guests_and_takes_magento_s_purges() {
    let origin = Origin::start(magento);
    let proxy = Proxy::embedded(&origin, &configuration("Magento"));
    let guest = || proxy.get("/mug.html").send();
    let is_of_guests = |answer: &Answer| {
        assert_eq!(answer.text(), "<p>Prices for a guest</p>");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-magento-tags"), None);
        assert_eq!(answer.header("set-cookie"), None);
        answer.is_hit()
    };
    assert!(!is_of_guests(&guest()));
    assert!(is_of_guests(&guest()));
    let later =
        proxy.get("/mug.html?utm_source=x").cookie("PHPSESSID=q7fkm2vd1x; mage-cache-sessid=true");
    assert!(is_of_guests(&later.send()), "a session alone changes no page");
    for _ in 0..2 {
        let ann = proxy.get("/mug.html").cookie("PHPSESSID=customer; X-Magento-Vary=9c2b1d").send();
        assert!(!ann.is_hit() && ann.text().contains("ann"), "{ann:?}");
    }
    assert!(is_of_guests(&guest()));
    let own = proxy.get("/customer/account").cookie("PHPSESSID=customer").send();
    assert!(own.cache_status().ends_with("detail=route"), "{own:?}");

    let purge = |pattern: &str| {
        let purge = proxy.ask("PURGE", "/").header("X-Magento-Tags-Pattern", pattern).send();
        assert_eq!(purge.status, 200, "{pattern}: {}", purge.text());
    };
    for pattern in ["((^|,)cat_p_7(,|$))|((^|,)cms_b_2(,|$))", ".*"] {
        purge(pattern);
        assert!(!is_of_guests(&guest()), "{pattern}");
        assert!(is_of_guests(&guest()));
    }
}

#[test]
fn the_drupal_guide_shares_pages_of_strangers_and_takes_bans_by_tags() {
    let origin = Origin::start(|request| {
        let is_user = has_cookie(request, "SSESS");
        let (reader, lifetime) = match is_user {
            true => ("ann", "must-revalidate, no-cache, private"),
            false => ("a stranger", "max-age=900, public"),
        };
        Reply::html(&format!("<p>Seen by {reader}</p>"))
            .header("Cache-Control", lifetime)
            .header("Vary", "Cookie")
            .header("Cache-Tags", "config:user.role.anonymous node:1 node_list")
    });
    let proxy = Proxy::embedded(&origin, &configuration("Drupal"));
    let stranger = || proxy.get("/node/1").cookie("has_js=1").send();
    assert!(!stranger().is_hit());
    let kept = stranger();
    assert!(kept.is_hit() && kept.text().contains("a stranger"), "{kept:?}");
    assert_eq!(kept.header("cache-tags"), None);
    let ann = proxy.get("/node/1").cookie("SSESSab12=0123456789abcdef").send();
    assert!(!ann.is_hit() && ann.text().contains("ann"), "{ann:?}");
    assert!(stranger().is_hit());

    for (field, tags) in [
        ("Cache-Tags", "node:1"),
        ("Cache-Tags", "node:2|node_list"),
        ("Purge-Cache-Tags", "config:user.role.anonymous"),
        ("Surrogate-Key", "node:1"),
    ] {
        assert!(stranger().is_hit());
        let ban = proxy.ask("BAN", "/").header(field, tags).send();
        assert_eq!(ban.status, 200, "{field}: {tags}: {}", ban.text());
        assert!(!stranger().is_hit(), "{field}: {tags}");
    }
}
