//! Changes of users and libraries of functions that the nodes of a control group share. A command
//! describes its change in a form that the thread which waits for the group can apply.

use protocol::Reply;

use crate::error::CommandError;
use crate::shared::Shared;

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedPart {
    /// A user, by name. Its content is a line of a file of users.
    User(Vec<u8>),
    /// All libraries of functions. Their content is that of FUNCTION DUMP.
    Libraries,
}

/// Returns the new content of a part, made from its present content here, or `None` to remove it.
/// Called again if a concurrent change came first.
pub type MakePart = Box<dyn Fn(&Shared) -> Result<Option<Vec<u8>>, CommandError> + Send + Sync>;

/// Called when all of a change is in force here, with the number of changed parts. Writes the
/// reply.
pub type WhenDone = Box<dyn Fn(&Shared, usize, &mut Reply<'_>) + Send + Sync>;

/// A change that its client waits for.
pub struct SharedChange {
    /// The changes, in order.
    pub parts: Vec<(SharedPart, MakePart)>,
    /// What is called after them.
    pub when_done: WhenDone,
}
