//! HTTP/2 to clients: its requests mean what those of HTTP/1.1 mean, and no client keeps us busy for
//! nothing.

mod deadlines;
mod floods;
mod lengths;
mod requests;
mod responses;
mod spec;
mod tools;
