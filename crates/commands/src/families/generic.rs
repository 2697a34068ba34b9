//! TODO-HEAD generic

use crate::spec::CommandSpec;

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[];
