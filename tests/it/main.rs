//! The proxy from outside: the real binary between real sockets. One module a subject; each case
//! is named after what it promises.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the way to fail, and unwrap says where"
)]

mod asked_once;
mod beside_nginx;
mod browse;
mod bypass;
mod cart;
mod cleanup;
mod coding;
mod command;
mod connect_check;
mod control;
mod cookies;
mod dashboard_access;
mod database_rows;
mod demo;
mod directives;
mod docs;
mod drain;
mod duplex;
mod early_answers;
mod endpoints;
mod esi;
mod explain;
mod fixation;
mod fleet;
mod flight;
mod forwarding;
mod fragments;
mod framing;
mod freshness;
mod gate;
mod grpc;
mod http2;
mod idle;
mod in_the_path;
mod interim;
mod leak;
mod learn;
mod learn_pages;
mod limits;
mod listen;
mod live_numbers;
mod log;
mod log_command;
mod login;
mod loops;
mod moving;
mod openapi;
mod origins;
mod otlp;
mod outage;
mod own_sessions;
mod packaging;
mod peers;
mod personal;
mod pins;
mod popularity;
mod presets;
mod purge;
mod races;
mod rates;
mod reference;
mod refresh_ahead;
mod reload;
mod reload_pages;
mod remove_headers;
mod renewal;
mod requests;
mod responses;
mod revalidation;
mod route;
mod route_rules;
mod row_holes;
mod row_schedule;
mod rows;
mod rule_test;
mod segments;
mod servers;
mod service_manager;
mod sharing;
mod spellings;
mod status;
mod stripped;
mod table;
mod tls;
mod token_storage;
mod top_command;
mod traces;
mod tunnel;
mod upstream;
mod user_pages;
mod variants;
mod verify;
mod visitor;
mod visitor_tokens;
mod warm;
mod warm_command;
mod webhook;
mod websocket;

use anteroom_tests as support;
