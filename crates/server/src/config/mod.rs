//! The configuration: one table of directives, and everything that reads or changes their values.
//!
//! ```text
//!   environment, file, stdin, argv ──> Settings (a value per directive) ──> Config (plain fields)
//!   CONFIG SET ──> SharedConfig ──> new Settings, new Config ──> threads, at their next loop turn
//!   CONFIG GET, CONFIG REWRITE <── Settings
//! ```
//!
//! [`Settings`] is authoritative; [`Config`] is derived from it and holds only the settings with an
//! effect. A directive is described once, by its row in the table.

mod cluster;
mod directive;
mod directives;
mod durability;
mod error;
mod fields;
mod group;
mod http;
mod loader;
mod memcached;
mod of_group;
mod replication;
mod rewrite;
mod settings;
mod shared;
mod table;
mod tier;
mod tls;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use base::os_error::system_reason;
pub use cluster::Cluster;
pub(crate) use directives::changes_between;
pub use durability::{Durability, DurabilityLevel, QuorumReads, SavePoint};
pub use error::ConfigError;
pub use fields::{
    AuditConfig, BindAddress, ClientsMemory, Config, Defragmentation, EvictionPolicy, OomScore,
    Origin, OutputLimit, OutputLimits, Permission, Supervised,
};
#[cfg(feature = "cluster")]
pub(crate) use group::Shares;
pub use group::{Group, LINK_PORT_DISTANCE};
pub use http::{Http, MetricsAuth};
pub(crate) use loader::{LoadError, Loader, read_file};
pub use memcached::Memcached;
pub use of_group::{Divided, OwnedPair};
pub use replication::{LinkEncryption, LoadsDirectly, Replication};
pub(crate) use rewrite::replace_file;
pub use settings::Settings;
pub use shared::{ApplyError, Change, ConfigReader, SharedConfig};
pub use tier::{TierConfig, TierIo};
pub use tls::{ClientCertificate, Tls, TlsRules, UserField};
