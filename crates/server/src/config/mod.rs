//! The configuration: one table of directives, and everything that reads or changes their values.
//!
//! ```text
//!   environment, file, stdin, argv ──> Settings (a value per directive) ──> Config (plain fields)
//!   CONFIG SET ──> SharedConfig ──> new Settings, new Config ──> threads, at their next loop turn
//!   CONFIG GET, CONFIG REWRITE <── Settings
//! ```
//!
//! [`Settings`] is the truth; [`Config`] is derived from it and holds only what does something.
//! A directive is described once, by its row in the table.

mod fields;
mod settings;
mod shared;

pub use fields::{
    BindAddress, ClientsMemory, Config, EvictionPolicy, Origin, OutputLimit, OutputLimits,
    Permission, Supervised,
};
pub use settings::{ConfigError, Settings};
pub use shared::{ApplyError, Change, ConfigReader, SharedConfig};
