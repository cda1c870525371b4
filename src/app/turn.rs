//! What a plan says of how requests are answered, as the threads hold it. A reload brings the next turn.

use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use super::origins::Origins;
use super::parts::{self, Shared};
use super::webhook;
use crate::cache::purger::Purger;
use crate::cache::rules::verdict::Policy;
use crate::config::{Cache, Limits, Plan};
use crate::origin;
use crate::proxy::{Recompressor, Settings};
use crate::serve;
use crate::serve::io::Deadlines;

/// What holds from one reload to the next, for all threads.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) settings: Arc<Settings>,
    pub(super) coder: Arc<Recompressor>,
    pub(super) purger: Arc<Purger>,
    pub(super) origins: Arc<Origins>,
    /// How the webhook of abandoned carts is reached, if there is one.
    pub(super) webhook: Option<origin::Settings>,
    pub(super) policy: Policy,
    pub(super) connection: serve::Settings,
    pub(super) drain_timeout: Duration,
}

impl Turn {
    /// What `plan` says. Reads the certificates that it names.
    pub(super) fn new(plan: &Plan, shared: &Shared) -> Result<Arc<Self>, StartError> {
        let cache = &plan.cache;
        let purger = Arc::new(Purger {
            pages: Arc::clone(&shared.pages),
            hosts: plan.origin.hosts.clone(),
            ignore_query: cache.ignore_query.clone(),
        });
        let origins = Arc::new(Origins::new(plan, &shared.origins.load())?);
        Ok(Arc::new(Self {
            settings: Arc::new(parts::settings(plan, &purger)),
            coder: Recompressor::new(cache.compress.clone(), cache.max_object),
            purger,
            origins,
            webhook: webhook::settings(plan)?,
            policy: policy(cache),
            connection: connection(&plan.limits),
            drain_timeout: plan.limits.drain_timeout,
        }))
    }
}

fn connection(limits: &Limits) -> serve::Settings {
    serve::Settings {
        deadlines: Deadlines {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            stall: limits.stall_timeout,
        },
        request_head: limits.request_head,
    }
}

fn policy(cache: &Cache) -> Policy {
    Policy {
        default_ttl: cache.default_ttl,
        stale_while_revalidate: cache.stale_while_revalidate,
        stale_if_error: cache.stale_if_error,
        static_for_all: cache.static_for_all,
        max_object: cache.max_object,
        client_directives: cache.client_directives,
    }
}
