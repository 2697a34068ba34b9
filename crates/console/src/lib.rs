//! The management port: health, metrics, an API that runs commands as the user who is logged in, and the page that
//! uses it.
//!
//! One thread of its own serves it ([`Console`]); no worker ever does. It gets its data through two
//! ports that the server provides ([`Figures`], [`Sessions`]): it knows no store, no sockets of
//! workers and no command. Requests that a foreign page may have made a browser send are refused
//! before any handler runs ([`guard`]). All other requests run with the rights of the user, command
//! by command, as on any connection.
#![forbid(unsafe_code)]

mod api;
mod files;
mod guard;
mod history;
mod json;
mod limits;
mod link;
mod login;
mod metrics_access;
mod otlp;
mod ports;
mod probes;
mod rest;
mod serve;
mod settings;
mod shared;
mod stream;
mod text;

pub use otlp::{Export, Target};
pub use ports::{
    Admission, Duplex, Encrypted, Encrypting, Encryption, Field, Figures, Link, Outgoing, Reached,
    Section, Sessions, Unreached, Unready,
};
pub use serve::{Console, answer};
pub use settings::{MetricsAuth, Settings};
pub use text::{Format, write};
/// An accepted connection.
pub use tokio::net::TcpStream;
