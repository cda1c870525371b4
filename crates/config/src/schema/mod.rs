//! The schema: every key with its form and its bounds, once.
//!
//! A `Reader` walks it to read a plan, a `Printer` to write one. The keys visited are the valid ones.
//! Defaults are in the plan, contradictions between keys in `check`.

mod acme;
mod admin;
mod admin_token;
mod cache;
mod error_pages;
mod extractor;
mod fields;
pub(super) mod fragment;
mod include;
mod learn;
mod limits;
mod listen;
mod login;
mod network;
mod origin;
mod path;
mod purge_rule;
mod route;
mod route_match;
mod segment;
mod session;
pub(super) mod shared;
mod traces;
mod ttl;

use std::net::{Ipv4Addr, SocketAddr};

use anteroom_http::harden::Hardening;
use anteroom_policy::audit::AuditRate;
use anteroom_policy::route::Route;

use crate::credential::OpenStoreForm;
use crate::plan::{DatabaseConfig, Listen, OriginConfig, OriginUrl, Plan, Rows};
use crate::schema::include::IncludeForm;
use crate::schema::shared::count;
use crate::walk::Walk;

/// The most `[[listen]]`.
const LISTEN_MAX: usize = 64;

/// The most `[[route]]`, which are tried in order.
const ROUTES_MAX: usize = 1_000;

/// The most `[origins.NAME]`.
const ORIGINS_MAX: usize = 64;

/// The most `[databases.NAME]`.
const DATABASES_MAX: usize = 16;

/// The most `[[cookies]]`.
const COOKIES_MAX: usize = 64;

/// The most `[[rows]]`.
const ROWS_MAX: usize = 64;

/// Visits every key of `plan`.
pub(super) fn walk(at: &mut impl Walk, plan: &mut Plan) {
    at.key("include", &mut (), &IncludeForm);
    at.key("threads", &mut plan.threads, &count(1, 512));
    let nowhere = || Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    at.tables("listen", LISTEN_MAX, &mut plan.listen, nowhere, listen::listen);
    at.section("acme", |at| acme::acme(at, &mut plan.acme));
    at.section("client", |at| listen::client(at, &mut plan.client));
    at.section("origin", |at| origin::main_origin(at, &mut plan.origin));
    let further = || OriginConfig::further(OriginUrl::default());
    at.named("origins", ORIGINS_MAX, &mut plan.origins, further, origin::origin);
    at.section("store", |at| cache::store(at, &mut plan.store));
    at.section("session", |at| session::session(at, &mut plan.session));
    at.section("visitor", |at| session::visitor(at, &mut plan.visitor));
    let app = plan.session.app;
    at.section("cache", |at| {
        at.preset(|| app.into_iter().for_each(|app| app.ignore(&mut plan.cache)));
        cache::cache(at, &mut plan.cache);
    });
    at.section("learn", |at| learn::learn(at, &mut plan.learn));
    at.section("views", |at| cache::views(at, &mut plan.views));
    let new_route = || Route { audit: AuditRate::DEFAULT, ..Route::default() };
    at.tables("route", ROUTES_MAX, &mut plan.routes, new_route, route::route);
    at.tables("cookies", COOKIES_MAX, &mut plan.cookies, Hardening::default, route::cookies);
    at.named(
        "databases",
        DATABASES_MAX,
        &mut plan.databases,
        DatabaseConfig::default,
        origin::database,
    );
    at.tables("rows", ROWS_MAX, &mut plan.rows, Rows::default, origin::rows);
    at.section("purge", |at| {
        at.preset(|| app.into_iter().for_each(|app| app.purge(&mut plan.purge)));
        cache::purge(at, &mut plan.purge);
    });
    at.section("admin", |at| admin::admin(at, &mut plan.admin));
    at.section("errors", |at| admin::errors(at, &mut plan.errors));
    at.section("log", |at| admin::log(at, &mut plan.log));
    at.section("traces", |at| traces::traces(at, &mut plan.traces));
    at.section("limits", |at| limits::limits(at, &mut plan.limits));
}

/// Visits the keys that decide where the socket of the data commands is.
pub(super) fn walk_socket(at: &mut impl Walk, plan: &mut Plan) {
    at.section("store", |at| at.key("url", &mut plan.store.url, &OpenStoreForm));
    at.section("admin", |at| admin::socket(at, &mut plan.admin));
}
