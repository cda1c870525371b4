//! Texts with a meaning: addresses, hosts, names, patterns.
//!
//! Each function returns the value, or what was expected. Other settings are unknown here.

mod acme;
mod address;
mod audit;
mod field;
mod name;
mod path;

pub(super) use acme::{acme_directory, acme_email, acme_profile};
pub(super) use address::{
    HTTPS, address, config_pattern, file, file_pattern, host, host_pattern, https, is_near,
    is_path, listen_address, mode, network, origin_host, origin_url, peers, server_name,
    show_https, show_origin_url, show_traces_endpoint, show_webhook_url, traces_endpoint,
    webhook_url,
};
pub(super) use audit::audit_rate;
pub(super) use field::{identity_header, key_header, receiver_header, send_header};
pub(super) use name::{
    admin_token_name, allowed_purge, any_cookie, any_query, channel, column_name, cookie_name,
    cookie_pattern, database_reference, field_pattern, form_field, key_prefix, method, origin_name,
    origin_reference, pattern_of_values, query_condition, query_name, query_pattern, query_value,
    route_name, row_ids, rows_name, rows_query, service_name, show_query_condition,
};
pub(super) use path::{
    branch, health_path, hole_path, path_pattern, path_prefix, route_path, rows_path,
};

/// The longest pattern, name or host, in bytes.
const TEXT_MAX: usize = 1_024;
/// The longest route name, in bytes: each line of the access log contains it.
pub(super) const NAME_MAX: usize = 128;
