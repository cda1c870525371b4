//! The keys of `[store]`, `[cache]`, `[views]` and `[purge]`.

use std::time::Duration;

use anteroom_http::coding::Coding;
use anteroom_http::pattern::Pattern;
use anteroom_policy::answer::StatusDetail;

use super::learn::CACHE_MODES;
use super::network::networks;
use super::purge_rule::PurgeRuleForm;
use super::shared::{AUDIT, DAY, MIB, MS, OBJECT, TIB, TTL, count, named};
use crate::credential::StoreForm;
use crate::form::{Either, Flag, List, Optional, Size, Span, Text, Words};
use crate::plan::{Cache, NextStore, Purge, PurgeAuthorization, Store, StoreLayout, ViewsConfig};
use crate::text;
use crate::walk::Walk;

pub(super) fn store(at: &mut impl Walk, store: &mut Store) {
    at.key("url", &mut store.url, &StoreForm);
    at.key("pages_url", &mut store.pages_url, &Optional(StoreForm));
    at.key("timeout", &mut store.timeout, &Span { min: MS, max: Duration::from_secs(10) });
    at.key("pages", &mut store.pages, &Size { min: MIB, max: TIB });
    at.key("max_page", &mut store.max_page, &OBJECT);
    at.key("prefix", &mut store.prefix, &named(text::key_prefix));
    at.key("layout", &mut store.layout, &Words(&LAYOUTS));
    at.section("next", |at| next_store(at, &mut store.next));
}

/// The words of `layout`.
const LAYOUTS: [(&str, StoreLayout); 2] =
    [("single", StoreLayout::Single), ("sharded", StoreLayout::Sharded)];

fn next_store(at: &mut impl Walk, next: &mut NextStore) {
    at.key("url", &mut next.url, &Optional(StoreForm));
    at.key("pages_url", &mut next.pages_url, &Optional(StoreForm));
    at.key("prefix", &mut next.prefix, &Optional(named(text::key_prefix)));
    at.key("layout", &mut next.layout, &Optional(Words(&LAYOUTS)));
}

/// How long a start may read pages. A supervisor waits for it no longer than a minute or two.
const WARM_START: Span = Span { min: Duration::ZERO, max: Duration::from_secs(60) };

pub(super) fn cache(at: &mut impl Walk, cache: &mut Cache) {
    at.key("mode", &mut cache.mode, &Words(&CACHE_MODES));
    at.key("default_ttl", &mut cache.default_ttl, &TTL);
    at.key("stale_while_revalidate", &mut cache.stale_while_revalidate, &TTL);
    at.key("stale_if_error", &mut cache.stale_if_error, &TTL);
    at.key("refresh_ahead", &mut cache.refresh_ahead, &Flag);
    at.key("audit", &mut cache.audit, &AUDIT);
    at.key("warm_after_purge", &mut cache.warm_after_purge, &count(0, 100));
    let directives = [("ignore", false), ("honour", true)];
    at.key("client_directives", &mut cache.client_directives, &Words(&directives));
    let unknown = [("bypass", true), ("ignore", false)];
    at.key("unknown_cookies", &mut cache.unknown_cookies_bypass, &Words(&unknown));
    at.key("trust_public", &mut cache.trust_public, &Flag);
    at.key("static_for_all", &mut cache.static_for_all, &Flag);
    at.key("fill_client_address", &mut cache.fill_client_address, &Flag);
    let cookies = List::of(Text { parse: text::cookie_pattern, show: Pattern::to_string });
    at.key("ignore_cookies", &mut cache.ignore_cookies, &cookies);
    let parameters = List::of(Text { parse: text::query_pattern, show: Pattern::to_string });
    at.key("ignore_query", &mut cache.ignore_query, &parameters);
    let fields = List::of(Text { parse: text::field_pattern, show: Pattern::to_string });
    at.key("identity_headers", &mut cache.identity_headers, &fields);
    at.key("memory", &mut cache.memory, &Either("auto", Size { min: MIB, max: TIB }));
    at.key("warm_start", &mut cache.warm_start, &WARM_START);
    at.key("max_object", &mut cache.max_object, &OBJECT);
    let codings = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
    let codings = codings.map(|coding| (coding.as_str(), coding));
    at.key("compress", &mut cache.compress, &List::of(Words(&codings)));
    let detail =
        [("full", StatusDetail::Full), ("short", StatusDetail::Short), ("off", StatusDetail::Off)];
    at.key("status", &mut cache.status, &Words(&detail));
}

pub(super) fn views(at: &mut impl Walk, views: &mut ViewsConfig) {
    let every = Span { min: Duration::from_secs(1), max: DAY.saturating_mul(365) };
    at.key("rescale_every", &mut views.rescale_every, &every);
    at.key("keep_top", &mut views.keep_top, &count(1, 1_000_000));
    at.key("rescale_percent", &mut views.rescale_percent, &count(1, 100));
}

pub(super) fn purge(at: &mut impl Walk, purge: &mut Purge) {
    at.key("method", &mut purge.method, &Flag);
    at.key("purge_from", &mut purge.purge_from, &networks());
    let tokens = [("admin", PurgeAuthorization::Admin), ("none", PurgeAuthorization::None)];
    at.key("purge_token", &mut purge.purge_token, &Words(&tokens));
    at.key("after", &mut purge.after, &List::of(PurgeRuleForm));
}
