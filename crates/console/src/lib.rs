//! The management port: health, metrics, an API that runs commands as the user who is logged in, and the page that
//! uses it.
//!
//! One thread of its own serves it ([`Console`]); no worker ever does. What it tells comes through two ports that the
//! server gives it ([`Figures`], [`Sessions`]): it knows no store, no sockets of workers and no command. Whatever a
//! browser may be made to send is refused before it is looked at ([`guard`]); what remains runs with the rights of the
//! user, command by command, as on any connection.
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
/// A connection that came.
pub use tokio::net::TcpStream;
