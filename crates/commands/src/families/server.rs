//! TODO-HEAD server

use crate::spec::CommandSpec;

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[];
