//! The proxy from outside: the real binary between real sockets. One module a subject; each case
//! is named after what it promises.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the way to fail, and unwrap says where"
)]

mod background;
mod browse;
mod cart;
mod cleanup;
mod cluster;
mod coding;
mod command;
mod connect_check;
mod control;
mod control_contract;
mod cookies;
mod demo;
mod directives;
mod dismissal_contract;
mod docs;
mod drain;
mod duplex;
mod endpoints;
mod esi;
mod event_contract;
mod expire;
mod explain;
mod fixation;
mod flight;
mod forwarding;
mod fragments;
mod framing;
mod freshness;
mod gate;
mod grpc;
mod http2;
mod idle;
mod interim;
mod interop;
mod leak;
mod limits;
mod listen;
mod log;
mod login;
mod openapi;
mod origins;
mod outage;
mod own_sessions;
mod packaging;
mod page_contract;
mod peers;
mod personal;
mod pins;
mod popularity;
mod presets;
mod purge;
mod purge_contract;
mod races;
mod rates;
mod reference;
mod reload;
mod reload_pages;
mod remove_headers;
mod renewal;
mod requests;
mod responses;
mod revalidation;
mod route;
mod route_rules;
mod row_contract;
mod rows;
mod rule_test;
mod segments;
mod servers;
mod service_manager;
mod sharing;
mod spellings;
mod store_contract;
mod stripped;
mod support;
mod table;
mod tls;
mod token_storage;
mod traces;
mod tunnel;
mod upstream;
mod user_pages;
mod variants;
mod verify;
mod visitor;
mod visitor_contract;
mod visitor_tokens;
mod webhook;
mod websocket;
